//! A proxy that breaks connections to a server in the middle.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Bytes that a connection carries before it breaks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carries {
    /// To the server.
    pub(crate) up: usize,
    /// From the server.
    pub(crate) down: usize,
}

impl Carries {
    /// It does not break.
    pub(crate) const ALL: Self = Self { up: usize::MAX, down: usize::MAX };
}

/// A proxy to a server.
pub(crate) struct Line {
    /// The address for clients.
    pub(crate) address: String,
    server: Arc<Mutex<String>>,
    broken: Arc<AtomicUsize>,
    carried: watch::Sender<usize>,
    accepting: JoinHandle<()>,
}

impl Line {
    /// Breaks each connection, up to this number of them, after this many bytes from the server.
    pub(crate) async fn to(server: String, breaks: usize, after: usize) -> Self {
        let bytes = Carries { up: usize::MAX, down: after };
        Self::breaking(server, move |broken| if broken < breaks { bytes } else { Carries::ALL }).await
    }

    /// Calls `carries` for each connection, with the number of those that broke before.
    pub(crate) async fn breaking(server: String, mut carries: impl FnMut(usize) -> Carries + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("ws://{}/ws", listener.local_addr().unwrap());
        let (broken, server) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(server)));
        let carried = watch::Sender::new(0);
        let (counting, target, adding) = (broken.clone(), server.clone(), carried.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, broken, adding) = (target.lock().unwrap().clone(), counting.clone(), adding.clone());
                let carries = carries(broken.load(Ordering::SeqCst));
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(server).await else { return };
                    if carry(client, server, carries, &adding).await {
                        broken.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        Self { address, server, broken, carried, accepting }
    }

    /// Leads to another server from the next connection on.
    pub(crate) fn lead_to(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }

    /// Returns the number of connections that broke.
    pub(crate) fn broken(&self) -> usize {
        self.broken.load(Ordering::SeqCst)
    }

    /// Returns the bytes that have come from the server, over all connections.
    pub(crate) fn carried(&self) -> watch::Receiver<usize> {
        self.carried.subscribe()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Copies bytes both ways until one side closes, or the connection has carried its maximum. Returns true if it broke
/// the connection.
async fn carry(mut client: TcpStream, mut server: TcpStream, carries: Carries, total: &watch::Sender<usize>) -> bool {
    let (mut up, mut down, mut left) = (vec![0; 4096], vec![0; 4096], carries);
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read {
                Ok(count) if count > 0 => {
                    let count = count.min(left.up);
                    left.up -= count;
                    if server.write_all(&up[..count]).await.is_err() {
                        return false;
                    }
                }
                _ => return false,
            },
            read = server.read(&mut down) => match read {
                Ok(count) if count > 0 => {
                    let count = count.min(left.down);
                    left.down -= count;
                    total.send_modify(|total| *total += count);
                    if client.write_all(&down[..count]).await.is_err() {
                        return false;
                    }
                }
                _ => return false,
            },
        }
        if left.up == 0 || left.down == 0 {
            return true;
        }
    }
}

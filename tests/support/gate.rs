//! A TCP proxy before a server whose port is not known yet: other servers get the proxy's address, and a test cuts
//! connections, or refuses them.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// The proxy; it ends when dropped.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    target: Arc<Mutex<Option<String>>>,
    /// Connections that began before the last change end.
    cuts: watch::Sender<u64>,
    passed: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Starts a proxy that refuses everybody until it is opened.
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, cuts, passed) = (Arc::new(Mutex::new(None)), watch::Sender::new(0), Arc::<AtomicUsize>::default());
        let (to, cut, count) = (target.clone(), cuts.clone(), passed.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to: Option<String> = to.lock().unwrap().clone();
                let Some(to) = to else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, to, cut.subscribe()));
            }
        });
        Self { address, target, cuts, passed, task }
    }

    /// Leads to this server from now on.
    pub(crate) fn open(&self, target: &str) {
        *self.target.lock().unwrap() = Some(target.to_owned());
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends all connections and refuses others.
    pub(crate) fn close(&self) {
        *self.target.lock().unwrap() = None;
        self.cut();
    }

    /// Returns how many connections have passed.
    pub(crate) fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn pass(mut client: TcpStream, to: String, mut cuts: watch::Receiver<u64>) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = cuts.changed() => {}
    }
}

//! A TCP proxy before a server whose port is not known yet. Other servers get the proxy's address, and a test cuts
//! connections, delays them, or refuses them. It can also terminate TLS, as a proxy before a server does, and lead to
//! the socket of a database.

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// The folder with a certificate for `localhost`, its key, and the authority that signed it.
pub(crate) const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

/// The proxy; it ends when dropped.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    target: Arc<Mutex<Option<String>>>,
    /// Ends the connections that began before the last change.
    cuts: watch::Sender<u64>,
    frozen: watch::Sender<bool>,
    delay: watch::Sender<Duration>,
    passed: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Starts a proxy that refuses everybody until it is opened.
    pub(crate) async fn new() -> Self {
        Self::start(None).await
    }

    /// Starts a proxy that speaks TLS as `localhost`, with the certificate of the fixtures.
    pub(crate) async fn with_tls() -> Self {
        let certificate = CertificateDer::from_pem_file(format!("{TLS}/server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(format!("{TLS}/server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        Self::start(Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (target, cuts, passed) = (Arc::new(Mutex::new(None)), watch::Sender::new(0), Arc::<AtomicUsize>::default());
        let (frozen, delay) = (watch::Sender::new(false), watch::Sender::new(Duration::ZERO));
        let (to, cut, ice, count) = (target.clone(), cuts.clone(), frozen.clone(), passed.clone());
        let slow = delay.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to: Option<String> = to.lock().unwrap().clone();
                let Some(to) = to else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, tls.clone(), to, (cut.subscribe(), ice.subscribe()), slow.subscribe()));
            }
        });
        Self { address, target, cuts, frozen, delay, passed, task }
    }

    /// Leads to this server from now on: a host and a port, or the path of a socket.
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

    /// Lets no more bytes through, without ending connections. Neither side learns of it.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Ends what was frozen, and lets new connections through.
    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
        self.cut();
    }

    /// Delays everything on its way to the server by this time.
    pub(crate) fn delay(&self, time: Duration) {
        self.delay.send_replace(time);
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

/// Receivers of the cuts, and of whether the proxy is frozen.
type Changes = (watch::Receiver<u64>, watch::Receiver<bool>);

/// A connection to a server.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

async fn connect(to: &str) -> io::Result<Box<dyn Stream>> {
    if to.starts_with('/') {
        return Ok(Box::new(UnixStream::connect(to).await?));
    }
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

async fn pass(
    client: TcpStream,
    tls: Option<TlsAcceptor>,
    to: String,
    (mut cuts, mut frozen): Changes,
    delay: watch::Receiver<Duration>,
) {
    let Ok(server) = connect(&to).await else { return };
    client.set_nodelay(true).unwrap();
    let mut passing = std::pin::pin!(async {
        match tls {
            // A client that does not trust the certificate hangs up.
            Some(tls) => copy_both(tls.accept(client).await?, server, &delay).await,
            None => copy_both(client, server, &delay).await,
        }
    });
    let freezing = async { frozen.wait_for(|frozen| *frozen).await.map(drop) };
    tokio::select! {
        biased;
        // Both ends stay open, and nothing is copied.
        Ok(()) = freezing => {
            let _ = cuts.changed().await;
        }
        _ = cuts.changed() => {}
        _ = &mut passing => {}
    }
}

async fn copy_both(client: impl Stream, server: impl Stream, delay: &watch::Receiver<Duration>) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    tokio::try_join!(copy(from_client, to_server, delay), copy(from_server, to_client, delay)).map(drop)
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: &watch::Receiver<Duration>,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let pause = *delay.borrow();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        to.write_all(&bytes[..count]).await?;
        to.flush().await?;
    }
}

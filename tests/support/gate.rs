//! A TCP proxy before a server whose port is not known yet: other servers get the proxy's address, and a test cuts
//! connections, or refuses them. It can also be the end of TLS, as a proxy before a server is.

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
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// The folder with a certificate for `localhost`, its key, and the authority that has signed it.
pub(crate) const TLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

/// The proxy; it ends when dropped.
pub(crate) struct Gate {
    pub(crate) address: SocketAddr,
    target: Arc<Mutex<Option<String>>>,
    /// Connections that began before the last change end.
    cuts: watch::Sender<u64>,
    frozen: watch::Sender<bool>,
    passed: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Starts a proxy that refuses everybody until it is opened.
    pub(crate) async fn new() -> Self {
        Self::start(None).await
    }

    /// Starts one that speaks TLS, as `localhost`, with the certificate of the fixtures.
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
        let frozen = watch::Sender::new(false);
        let (to, cut, ice, count) = (target.clone(), cuts.clone(), frozen.clone(), passed.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let to: Option<String> = to.lock().unwrap().clone();
                let Some(to) = to else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, tls.clone(), to, (cut.subscribe(), ice.subscribe())));
            }
        });
        Self { address, target, cuts, frozen, passed, task }
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

    /// Lets no byte through any more, without ending connections: whoever waits does not learn of it.
    pub(crate) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Ends what was frozen, and lets new connections through.
    pub(crate) fn thaw(&self) {
        self.frozen.send_replace(false);
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

/// Tells of cuts, and of the time when nothing passes any more.
type Changes = (watch::Receiver<u64>, watch::Receiver<bool>);

async fn pass(client: TcpStream, tls: Option<TlsAcceptor>, to: String, (mut cuts, mut frozen): Changes) {
    let Ok(mut server) = TcpStream::connect(to).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let mut passing = std::pin::pin!(async {
        match tls {
            // Whoever does not trust the certificate hangs up.
            Some(tls) => drop(copy_bidirectional(&mut tls.accept(client).await?, &mut server).await),
            None => drop(copy_bidirectional(&mut { client }, &mut server).await),
        }
        io::Result::Ok(())
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

//! A proxy between a client and a server on Unix sockets, which cuts connections at chosen bytes.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Answer,
}

/// The bytes that may pass before a cut; negative for no cut.
#[derive(Default)]
struct Budget {
    left: AtomicI64,
    cuts: AtomicU32,
}

/// The proxy; it ends when dropped.
pub(crate) struct Wire {
    folder: tempfile::TempDir,
    request: Arc<Budget>,
    answer: Arc<Budget>,
    task: JoinHandle<()>,
}

impl Wire {
    /// Starts a proxy before the server at this socket.
    pub(crate) fn before(server: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
        let budget = || Arc::new(Budget { left: AtomicI64::new(-1), cuts: AtomicU32::new(0) });
        let (request, answer) = (budget(), budget());
        let budgets = (request.clone(), answer.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server.clone(), budgets.0.clone(), budgets.1.clone()));
            }
        });
        Self { folder, request, answer, task }
    }

    /// Returns the folder with the proxy's socket.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Cuts the connection on which this many further bytes have passed one way, counted over all connections.
    pub(crate) fn cut_after(&self, way: Way, bytes: u32) {
        self.of(way).left.store(i64::from(bytes), Ordering::SeqCst);
    }

    /// Cuts no more, and returns how often this way was cut since the last call.
    pub(crate) fn stop(&self, way: Way) -> u32 {
        self.of(way).left.store(-1, Ordering::SeqCst);
        self.of(way).cuts.swap(0, Ordering::SeqCst)
    }

    fn of(&self, way: Way) -> &Budget {
        if way == Way::Request { &self.request } else { &self.answer }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: UnixStream, server: PathBuf, request: Arc<Budget>, answer: Arc<Budget>) {
    let Ok(server) = UnixStream::connect(server).await else { return };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    // The end of either direction ends both: the halves are dropped, and with them the sockets.
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server, &request) => {}
        _ = copy(&mut from_server, &mut to_client, &answer) => {}
    }
}

async fn copy(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    budget: &Budget,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        let mut passed = count;
        let left = budget.left.load(Ordering::SeqCst);
        if left >= 0 {
            let after = budget.left.fetch_sub(i64::try_from(count).unwrap(), Ordering::SeqCst) - count as i64;
            if after < 0 {
                budget.left.store(-1, Ordering::SeqCst);
                budget.cuts.fetch_add(1, Ordering::SeqCst);
                passed = usize::try_from(count as i64 + after).unwrap_or(0);
                to.write_all(&bytes[..passed]).await?;
                return Ok(());
            }
        }
        passed = passed.min(count);
        to.write_all(&bytes[..passed]).await?;
    }
}

//! The options of a TCP connection that streams.

use tokio::net::TcpStream;

/// Bytes that the kernel buffers for one connection beyond what it can send. The default is megabytes, which a slow
/// reader would have to read before it reaches current events.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES_MAX: u32 = 4 * 1024;

/// Sets the options of a streaming connection. None of them is essential.
pub(super) fn tune(stream: &TcpStream) {
    // Deltas are small, and each should be sent at once.
    let _ = stream.set_nodelay(true);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
}

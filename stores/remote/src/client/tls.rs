//! TLS for `idmills://`.

use idmill::Result;
use idmill_tls::client::{Advice, shake_hands, trusting};
use idmill_tls::showing;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::options::RemoteOptions;

const ADVICE: Advice = Advice { without: "idmill://", certificate: Some("cert=FILE&key=FILE") };

pub(super) async fn wrap(
    options: &RemoteOptions,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>> {
    let options = options.clone();
    shake_hands(move || config(&options), host, stream, ADVICE).await
}

fn config(options: &RemoteOptions) -> Result<ClientConfig> {
    showing(trusting(options.tls.ca.as_deref(), "ca")?, &options.tls)
}

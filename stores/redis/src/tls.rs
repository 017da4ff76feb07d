//! TLS for `rediss://`.

use idmill::Result;
use idmill_tls::client::{Advice, shake_hands, trusting};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::place::Place;

const ADVICE: Advice = Advice { without: "redis://", certificate: None };

pub(super) async fn wrap(place: &Place, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
    let file = place.tls.ca.clone();
    let config = move || Ok(trusting(file.as_deref(), "ca")?.with_no_client_auth());
    shake_hands(config, place.server.host(), stream, ADVICE).await
}

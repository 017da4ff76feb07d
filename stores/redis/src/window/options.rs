//! The server, the window's settings, and the URL form.

use std::time::Duration;

use idmill::Result;
use idmill_kit::options::{Options as _, whole};
use idmill_shared_cache::options::WindowOptions;

use super::SCRIPTS;
use crate::connection::Terms;
use crate::server_url::ServerUrl;
use crate::verify::Demands;

idmill_kit::options! {
    /// A Redis or Valkey server, and how its window is used.
    ///
    /// As a URL: `redis://USER:PASSWORD@HOST:PORT/DB`, or `rediss://…?ca=FILE` over TLS. The options, with
    /// their defaults, are `block=1000`, `max_skip=5s`, `stub=5s`, `refresh=5s`, `timeout=2s`, `replicas=0`
    /// and `prefix=idmill`. Printing hides the password.
    ///
    /// ```
    /// use idmill_redis::window::RedisWindowOptions;
    ///
    /// let options = RedisWindowOptions::new("cache-1:6379")?.block(5_000);
    /// assert_eq!(options.to_string(), "redis://cache-1:6379?block=5000");
    /// # Ok::<(), idmill::Error>(())
    /// ```
    pub struct RedisWindowOptions at hosts "redis" | "rediss" as "redis://HOST:PORT?block=1000" {
        url: ServerUrl,
        /// How the window is used.
        pub window: WindowOptions,
    }

    /// How many replicas must acknowledge a draw before its ids are used.
    ///
    /// Set it to the number of replicas that can be promoted: ids then grow even while two masters serve.
    /// With fewer replicas, ids are still unique.
    pub replicas: u32 = "0" in whole(0, 100);

    use window;
    use url;
}

impl RedisWindowOptions {
    /// Options for the server at `HOST:PORT`, with every option at its default.
    ///
    /// # Errors
    /// [`InvalidInput`](idmill::ErrorKind::InvalidInput) if this is not an address.
    pub fn new(address: &str) -> Result<Self> {
        Ok(Self::with_defaults(ServerUrl::at(address)?, WindowOptions::default()))
    }

    idmill_shared_cache::window_setters!();

    /// Sets the user, which may be empty, and the password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        self.url.authority.log_in(user, password);
        self
    }

    idmill_kit::tls_setters!([url.tls] tls, ca);

    fn at(scheme: &str, place: &str) -> Result<Self> {
        Ok(Self::with_defaults(ServerUrl::parse(scheme, place)?, WindowOptions::default()))
    }

    fn place(&self) -> String {
        self.url.to_string()
    }

    pub(super) fn check(&self) -> Result<()> {
        self.check_values()?;
        self.url.check()
    }

    pub(super) fn terms(&self) -> Terms {
        Terms {
            url: self.url.clone(),
            demands: Demands::Master,
            timeout: self.window.timeout,
            replicas: self.replicas,
            scripts: &SCRIPTS,
        }
    }
}

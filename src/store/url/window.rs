//! `window=URL` in the URL of any store: a window in front of it.

#[cfg(any(feature = "memcached", feature = "redis"))]
use std::{fmt, path::Path};

use std::sync::Arc;

#[cfg(any(feature = "memcached", feature = "redis"))]
use percent_encoding::utf8_percent_encode;

use super::Target;
use crate::error::{Error, Result};
#[cfg(any(feature = "memcached", feature = "redis"))]
use crate::store::url::query::ESCAPED_VALUE;
#[cfg(any(feature = "memcached", feature = "redis"))]
use crate::store::{Store, StoreFuture};

/// Puts the window that a URL names in front of a store.
#[cfg_attr(
    not(any(feature = "memcached", feature = "redis")),
    allow(unused_variables, clippy::needless_pass_by_value)
)]
pub(super) fn parse(store: Arc<dyn Target>, window: &str) -> Result<Arc<dyn Target>> {
    let scheme = window.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        #[cfg(feature = "memcached")]
        "memcached" => {
            let window = crate::tier::memcached::MemcachedOptions::parse(window)?;
            Ok(Arc::new(Windowed { store, window }))
        }
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            let window: crate::tier::redis::RedisWindowOptions = window.parse()?;
            Ok(Arc::new(Windowed { store, window }))
        }
        #[cfg(not(feature = "memcached"))]
        "memcached" => Err(absent("memcached")),
        #[cfg(not(feature = "redis"))]
        "redis" | "rediss" => Err(absent("redis")),
        // Not the text itself: it may hold a password.
        _ => Err(Error::invalid(
            "a window is written `memcached://HOST:PORT?block=1000` or `redis://HOST:PORT?block=1000`",
        )),
    }
}

#[cfg(not(all(feature = "memcached", feature = "redis")))]
fn absent(feature: &str) -> Error {
    let message = format!("`window={feature}:` is not compiled in: build with the cargo feature `{feature}`");
    Error::new(crate::error::ErrorKind::Unsupported, message)
}

/// The options of a window, and what they make of a store.
#[cfg(any(feature = "memcached", feature = "redis"))]
trait WindowOptions: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static {
    /// The cache is connected to by the first draw: looking at sequences does not take it.
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>>;
}

#[cfg(feature = "memcached")]
impl WindowOptions for crate::tier::memcached::MemcachedOptions {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        let window = crate::tier::memcached::MemcachedWindow::new(self.clone())?;
        Ok(Arc::new(crate::tier::Tiered::new(store, window)))
    }
}

#[cfg(feature = "redis")]
impl WindowOptions for crate::tier::redis::RedisWindowOptions {
    fn before(&self, store: Arc<dyn Store>) -> Result<Arc<dyn Store>> {
        let window = crate::tier::redis::RedisWindow::new(self.clone())?;
        Ok(Arc::new(crate::tier::Tiered::new(store, window)))
    }
}

#[cfg(any(feature = "memcached", feature = "redis"))]
#[derive(Debug)]
struct Windowed<W> {
    store: Arc<dyn Target>,
    window: W,
}

#[cfg(any(feature = "memcached", feature = "redis"))]
impl<W: WindowOptions> fmt::Display for Windowed<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = self.store.to_string();
        let separator = if store.contains('?') { '&' } else { '?' };
        // The address stays readable: errors name the store by its URL.
        let window = self.window.to_string();
        write!(f, "{store}{separator}window={}", utf8_percent_encode(&window, ESCAPED_VALUE))
    }
}

#[cfg(any(feature = "memcached", feature = "redis"))]
impl<W: WindowOptions> Target for Windowed<W> {
    fn scheme(&self) -> &'static str {
        self.store.scheme()
    }

    fn file(&self) -> Option<&Path> {
        self.store.file()
    }

    fn existing(&self) -> Arc<dyn Target> {
        Arc::new(Self { store: self.store.existing(), window: self.window.clone() })
    }

    fn connect(&self) -> StoreFuture<'_, Result<Arc<dyn Store>>> {
        Box::pin(async { self.window.before(self.store.connect().await?) })
    }
}

#[cfg(test)]
mod tests {
    use crate::error::ErrorKind;
    use crate::store::StoreUrl;

    #[test]
    #[cfg(not(feature = "memcached"))]
    fn a_window_that_is_not_compiled_in_names_its_feature() {
        let error = StoreUrl::parse("memory:?window=memcached://h").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("cargo feature `memcached`"), "{error}");
    }

    #[test]
    #[cfg(feature = "memcached")]
    fn a_store_with_a_window_prints_as_it_reads() {
        let printed = "memory:?window=memcached://h:11211%3Fblock%3D5";
        for url in ["MEMORY:?window=memcached://h%3Fblock=5", "memory:?window=memcached://h?block=5", printed]
        {
            assert_eq!(StoreUrl::parse(url).unwrap().to_string(), printed, "{url}");
        }
        for (url, remedy) in [
            ("memory:?window=http://h", "memcached://HOST:PORT"),
            ("memory:?window=h:11211", "redis://HOST:PORT"),
            ("memory:?window=memcached://h&x=1", "stands alone"),
            ("memory:?window=memcached://a:b@h", "not supported"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
    }

    #[test]
    #[cfg(feature = "redis")]
    fn a_store_with_a_window_on_redis_prints_as_it_reads_but_for_a_password() {
        let url = StoreUrl::parse("memory:?window=rediss://app:secret@h/2%3Fblock=5").unwrap();
        let printed = "memory:?window=rediss://app:***%40h:6379/2%3Fblock%3D5";
        assert_eq!(url.to_string(), printed);
        assert!(!format!("{url:?}").contains("secret"));
        let error = StoreUrl::parse("memory:?window=redis://app:sec@ret@h").unwrap_err();
        assert!(!error.to_string().contains("sec@"), "{error}");
    }

    #[tokio::test]
    #[cfg(all(feature = "memcached", feature = "sqlite"))]
    async fn a_window_hides_nothing_of_the_store_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids.db");
        let url = format!("sqlite:{}?table=t&window=memcached://127.0.0.1:1", file.display());
        let url = StoreUrl::parse(&url).unwrap();
        assert_eq!((url.scheme(), url.file()), ("sqlite", Some(file.as_path())));
        assert_eq!(StoreUrl::parse(&url.to_string()).unwrap(), url);
        let error = url.clone().existing().connect().await.unwrap_err();
        assert_eq!((error.kind(), file.exists()), (ErrorKind::NotFound, false));
        assert!(url.clone().existing().to_string().contains("window="));
        // Nothing listens there, and nothing needs to, to look at what there is.
        assert_eq!(url.connect().await.unwrap().list_all().await.unwrap(), []);
    }
}

//! `window=URL` in the URL of any store: a window in front of it.

use crate::error::{Error, Result};

/// Takes `window=…` out of what follows a store's scheme; the store reads the rest.
pub(super) fn split(rest: &str) -> Result<(String, Option<String>)> {
    let Some((place, query)) = rest.split_once('?') else { return Ok((rest.to_owned(), None)) };
    let mut windows = Vec::new();
    let others: Vec<&str> = query
        .split('&')
        .filter(|pair| match form_urlencoded::parse(pair.as_bytes()).next() {
            Some((key, value)) if key == "window" => {
                windows.push(value.into_owned());
                false
            }
            _ => true,
        })
        .collect();
    if windows.len() > 1 {
        return Err(Error::invalid("the option `window` is given twice; a store has one window"));
    }
    let Some(window) = windows.pop() else { return Ok((rest.to_owned(), None)) };
    let separator = if others.is_empty() { "" } else { "?" };
    Ok((format!("{place}{separator}{}", others.join("&")), Some(window)))
}

#[cfg(feature = "memcached")]
pub(super) use memcached::parse;

#[cfg(not(feature = "memcached"))]
pub(super) fn parse(
    _store: std::sync::Arc<dyn super::Target>,
    _window: &str,
) -> Result<std::sync::Arc<dyn super::Target>> {
    let message = "`window=` is not compiled in: build with the cargo feature `memcached`";
    Err(Error::new(crate::error::ErrorKind::Unsupported, message))
}

#[cfg(feature = "memcached")]
mod memcached {
    use std::fmt;
    use std::path::Path;
    use std::sync::Arc;

    use crate::error::Result;
    use crate::store::url::Target;
    use crate::store::{Store, StoreFuture};
    use crate::tier::Tiered;
    use crate::tier::memcached::{MemcachedOptions, MemcachedWindow};

    pub(in crate::store::url) fn parse(store: Arc<dyn Target>, window: &str) -> Result<Arc<dyn Target>> {
        Ok(Arc::new(Windowed { store, window: MemcachedOptions::parse(window)? }))
    }

    #[derive(Debug)]
    struct Windowed {
        store: Arc<dyn Target>,
        window: MemcachedOptions,
    }

    impl fmt::Display for Windowed {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let store = self.store.to_string();
            let separator = if store.contains('?') { '&' } else { '?' };
            let window: String =
                form_urlencoded::byte_serialize(self.window.to_string().as_bytes()).collect();
            write!(f, "{store}{separator}window={window}")
        }
    }

    impl Target for Windowed {
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
            Box::pin(async {
                // The cache is connected to by the first draw: looking at sequences does not take it.
                let window = MemcachedWindow::new(self.window.clone())?;
                Ok(Arc::new(Tiered::new(self.store.connect().await?, window)) as Arc<dyn Store>)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::StoreUrl;

    #[test]
    fn a_window_is_taken_out_and_all_else_is_left_as_it_was() {
        for (rest, left, window) in [
            ("ids.db", "ids.db", None),
            ("a%3Fwindow=x", "a%3Fwindow=x", None),
            ("a?mode=rw&table=x%20y", "a?mode=rw&table=x%20y", None),
            ("a?window=memcached://h:1", "a", Some("memcached://h:1")),
            (
                "a?x=%26&window=memcached://h%3Fblock%3D5%26stub%3D2s&y",
                "a?x=%26&y",
                Some("memcached://h?block=5&stub=2s"),
            ),
            ("a?w%69ndow=m", "a", Some("m")),
            ("a?windows=m", "a?windows=m", None),
        ] {
            let expected = (left.to_owned(), window.map(ToOwned::to_owned));
            assert_eq!(split(rest).unwrap(), expected, "{rest}");
        }
        let twice = split("a?window=x&window=y").unwrap_err();
        assert!(twice.kind() == ErrorKind::InvalidInput && twice.to_string().contains("twice"));
    }

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
        let printed = "memory:?window=memcached%3A%2F%2Fh%3A11211%3Fblock%3D5";
        for url in ["MEMORY:?window=memcached://h%3Fblock=5", "memory:?window=memcached://h?block=5", printed]
        {
            assert_eq!(StoreUrl::parse(url).unwrap().to_string(), printed, "{url}");
        }
        for (url, remedy) in [
            ("memory:?window=redis://h", "memcached://HOST:PORT"),
            ("memory:?window=memcached://h&x=1", "stands alone"),
            ("memory:?window=memcached://a:b@h", "not supported"),
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(error.to_string().contains(remedy), "{url}: {error}");
        }
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
        assert_eq!(url.connect().await.unwrap().list().await.unwrap(), []);
    }
}

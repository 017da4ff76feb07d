//! Models of the concurrency of idmill.

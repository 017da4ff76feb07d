//! Sends the valid values of a batch in one request.

use idmill::{ErrorKind, Result};

/// Passes all `Ok` values to `ask` in one call, and returns each result at the position of its value. Errors
/// keep their positions. A missing result becomes an error of kind `lost`.
pub async fn among<T, R>(
    all: impl Iterator<Item = Result<T>>,
    lost: ErrorKind,
    ask: impl AsyncFnOnce(Vec<T>) -> Vec<Result<R>>,
) -> Vec<Result<R>> {
    let mut values = Vec::new();
    let places: Vec<Result<()>> = all.map(|value| value.map(|value| values.push(value))).collect();
    let mut answers = ask(values).await.into_iter();
    let mut next = |()| answers.next().unwrap_or_else(|| Err(lost.into()));
    places.into_iter().map(|place| place.and_then(&mut next)).collect()
}

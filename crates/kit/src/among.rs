//! Asks for some of several values together.

use idmill::{ErrorKind, Result};

/// Asks for those of the values that are none of the errors, all together. Each answer takes the place of its
/// value; one that does not come is an error of the kind `lost`.
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

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

#[cfg(test)]
mod tests {
    use super::*;
    use idmill::Error;

    /// Asks for the double of each value, and returns the first `count` results.
    async fn doubled(all: &[i32], count: usize) -> Vec<Result<i32>> {
        let all =
            all.iter().map(|value| if *value < 0 { Err(Error::invalid("negative")) } else { Ok(*value) });
        among(all, ErrorKind::UnknownOutcome, async |values: Vec<i32>| {
            values.into_iter().map(|value| Ok(2 * value)).take(count).collect()
        })
        .await
    }

    fn kinds(results: Vec<Result<i32>>) -> Vec<Result<i32, ErrorKind>> {
        results.into_iter().map(|result| result.map_err(|error| error.kind())).collect()
    }

    #[tokio::test]
    async fn each_result_is_at_the_position_of_its_value() {
        let invalid = Err(ErrorKind::InvalidInput);
        assert_eq!(kinds(doubled(&[1, -1, 2, -1, 3], 9).await), [Ok(2), invalid, Ok(4), invalid, Ok(6)]);
        let lost = Err(ErrorKind::UnknownOutcome);
        assert_eq!(kinds(doubled(&[1, -1, 2, 3], 1).await), [Ok(2), invalid, lost, lost]);
        assert_eq!(kinds(doubled(&[], 9).await), []);
    }
}

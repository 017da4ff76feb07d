//! An unmodified Redis client.

use idmill_testing::faulty::FaultyStore;
use redis::AsyncCommands;

use crate::common::Running;

#[tokio::test]
async fn rust_redis_client_draws_ids() {
    let server = Running::over(FaultyStore::new()).await;
    for version in ["", "?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://{}/0{version}", server.resp)).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let first: i64 = connection.incr("orders", 1).await.unwrap();
        let last: i64 = connection.incr("orders", 10).await.unwrap();
        assert_eq!(last, first + 10);
        let got: Option<i64> = connection.get("orders").await.unwrap();
        assert_eq!(got, Some(last));
        let (a, b): (i64, i64) =
            redis::pipe().incr("orders", 1).incr("orders", 1).query_async(&mut connection).await.unwrap();
        assert_eq!((a, b), (last + 1, last + 2));
        let both: (i64, i64) = redis::pipe()
            .atomic()
            .incr("orders", 1)
            .incr("orders", 1)
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(both, (last + 3, last + 4));
        let refused = connection.set::<_, _, ()>("orders", 1).await.unwrap_err();
        assert!(refused.to_string().contains("only count upwards"), "{refused}");
    }
}

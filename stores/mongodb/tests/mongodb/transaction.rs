//! Ids in the caller's transaction. FerretDB has no transactions, so these tests only check the errors, and
//! that no ids are taken.

use idmill::ErrorKind;
use idmill_mongodb::driver::{Client, Database};
use idmill_mongodb::{InTransaction, next_in, reserve_in};

use crate::{inspect, open, reserve, server, url};

async fn database(server: &crate::Engine) -> (Client, Database) {
    let client = Client::with_uri_str(url(server.address(), "")).await.unwrap();
    let database = client.database("test");
    (client, database)
}

#[tokio::test]
async fn server_without_transactions_is_unsupported_with_remedy() {
    let Some(server) = server().await else { return };
    let (client, database) = database(&server).await;
    let store = open(server.address()).await;
    reserve(&store, "invoices", 10).await.unwrap();
    for sequence in ["invoices", "new"] {
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let error = next_in::<i64>(&mut session, &database, sequence).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("replica set"), "{error}");
        let error = reserve_in::<i64>(&mut session, &database, sequence, 5).await.unwrap_err();
        assert_eq!((error.kind(), error.sequence()), (ErrorKind::Unsupported, Some(sequence)));
    }
    assert_eq!(inspect(&store, "invoices").await.next, Some(11), "no id was reserved");
}

#[tokio::test]
async fn session_outside_a_transaction_is_rejected_but_usable() {
    let Some(server) = server().await else { return };
    let (client, database) = database(&server).await;
    let store = open(server.address()).await;
    reserve(&store, "invoices", 10).await.unwrap();
    let mut session = client.start_session().await.unwrap();
    for _ in 0..2 {
        let error = next_in::<i64>(&mut session, &database, "invoices").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("start_transaction"), "{error}");
    }
    assert_eq!(inspect(&store, "invoices").await.next, Some(11), "no id was reserved");
    session.start_transaction().await.unwrap();
    let none = reserve_in::<i64>(&mut session, &database, "invoices", 0).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn invalid_names_are_rejected_without_a_request() {
    let Some(server) = server().await else { return };
    let (_, database) = database(&server).await;
    assert_eq!(InTransaction::<u32>::new(&database, "").unwrap_err().kind(), ErrorKind::InvalidInput);
    let sequence = InTransaction::<u32>::new(&database, "s").unwrap();
    assert_eq!(sequence.collection("a$b").unwrap_err().kind(), ErrorKind::InvalidInput);
}

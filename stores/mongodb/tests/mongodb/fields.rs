//! Finds the largest id in a field of the user's own documents.

use idmill::ErrorKind;
use idmill_doctor::ColumnUrl;
use idmill_mongodb::driver::Client;
use idmill_mongodb::driver::bson::{Document, doc};

use crate::{schemes, server, url};

#[tokio::test]
async fn largest_id_is_found_in_a_user_field() {
    let Some(engine) = server().await else { return };
    let client = Client::with_uri_str(url(engine.address(), "")).await.unwrap();
    let orders = client.database("test").collection::<Document>("orders");
    let look = async |column: &str| {
        ColumnUrl::parse(&schemes(), &url(engine.address(), &format!("&column={column}")))
            .unwrap()
            .largest()
            .await
    };
    assert_eq!(look("orders.number").await.unwrap_err().kind(), ErrorKind::NotFound);
    let documents = [
        doc! { "number": 7_i32, "line": { "id": 5_i64 } },
        doc! { "number": i64::MAX, "line": { "id": 9_i64 } },
        doc! { "note": "none", "double": 12.0 },
        doc! { "note": 5_i32, "double": 11.0, "half": 0.5 },
    ];
    orders.insert_many(documents).await.unwrap();
    assert_eq!(look("orders.number").await.unwrap().id, Some(i128::from(i64::MAX)));
    assert_eq!(look("orders.line.id").await.unwrap().id, Some(9));
    // JavaScript stores integers as doubles.
    assert_eq!(look("orders.double").await.unwrap().id, Some(12));
    for column in ["orders.note", "orders.half", "orders._id"] {
        assert_eq!(look(column).await.unwrap_err().kind(), ErrorKind::Unsupported, "{column}");
    }
    let typo = look("orders.nubmer").await.unwrap_err();
    assert!(typo.kind() == ErrorKind::NotFound && typo.to_string().contains("no field"), "{typo}");
}

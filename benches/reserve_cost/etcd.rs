//! etcd: a transaction that writes a key if its value is still the last one.

use idmill_testing::engines::Engine;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::{COUNT, Costs, TIMES, WARM};

/// `Compare` of etcd's `rpc.proto`, with the value as the target. `result` is omitted: its default, 0, is
/// `EQUAL`.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RequestOp {
    #[prost(message, optional, tag = "2")]
    put: Option<PutRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

/// `Compare.CompareTarget.VALUE`.
const VALUE: i32 = 3;

/// Writes `now`, if the value is `before`; without `before`, in any case.
async fn write(channel: &Channel, before: Option<u64>, now: u64) {
    let key = b"/by_hand".to_vec();
    let compare =
        before.map(|value| Compare { target: VALUE, key: key.clone(), value: value.to_string().into() });
    let put = PutRequest { key, value: now.to_string().into() };
    let request =
        TxnRequest { compare: compare.into_iter().collect(), success: vec![RequestOp { put: Some(put) }] };
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a channel");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/etcdserverpb.KV/Txn");
    let codec = ProstCodec::<TxnRequest, TxnResponse>::default();
    let response = grpc.unary(tonic::Request::new(request), path, codec).await.expect("an answer");
    assert!(response.into_inner().succeeded, "only this program writes the key");
}

pub(crate) async fn costs() -> Option<Costs> {
    let engine = Engine::start("etcd").await?;
    let (address, mut costs) = (engine.address(), Costs::default());
    let options = idmill_etcd::EtcdOptions::new([address.to_string()]);
    let store = idmill_etcd::EtcdStore::open_with(options).await.expect("a store");
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = endpoint.tcp_nodelay(true).connect().await.expect("a client");
    let mut next = 1;
    write(&channel, None, next).await;
    for _ in 0..WARM + TIMES {
        costs.reserve(&store).await;
        costs.by_hand.time(write(&channel, Some(next), next + COUNT)).await;
        next += COUNT;
    }
    Some(costs)
}

//! Spans of `idmill serve`, as an OTLP collector receives them.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use idmill_testing::fleet::{Server, request, talk};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use prost::Message as _;

use crate::common::Place;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const SECRET: &str = "hunter2-of-nobody-else";

/// A request to the collector.
struct Sent {
    path: String,
    authorization: Option<String>,
    request: ExportTraceServiceRequest,
}

/// Starts a collector. Returns its address, and the requests that it receives.
fn collector() -> (String, Receiver<Sent>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || collect(stream, &sender));
        }
    });
    (address, received)
}

/// Receives the requests of one connection until it ends.
fn collect(stream: TcpStream, sender: &Sender<Sent>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut headers = HashMap::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut body = vec![0; headers["content-length"].parse().unwrap()];
        stream.read_exact(&mut body).ok()?;
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        sender.send(Sent { path, authorization: headers.remove("authorization"), request }).ok()?;
        stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}

/// Starts a verbose server with these variables.
fn start(place: &Place, variables: &[(&str, &str)]) -> Server {
    Server::start(place.serve(&["-vv"]).envs(variables.iter().copied()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn attribute(attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

/// Returns all requests and spans. Call it after the server has ended.
fn all(received: &Receiver<Sent>) -> (Vec<Sent>, Vec<Span>) {
    let sent: Vec<_> = received.try_iter().collect();
    let resources = sent.iter().flat_map(|sent| &sent.request.resource_spans);
    let spans = resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| &scope.spans);
    let spans = spans.cloned().collect();
    (sent, spans)
}

#[test]
fn requests_refills_and_administration_export_spans() {
    let place = Place::new();
    let (endpoint, received) = collector();
    let server = start(
        &place,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization={SECRET}")),
            ("OTEL_SERVICE_NAME", "ids-of-the-shop"),
            ("IDMILL_SERVE_CREATE", "false"),
        ],
    );
    let traced = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\nContent-Type: application/json\r\n");
    assert!(request(server.http, "PUT /v1/sequences/orders", &traced, "{}").starts_with("HTTP/1.1 201"));
    assert!(request(server.http, "POST /v1/sequences/orders/ids", &traced, "").starts_with("HTTP/1.1 200"));
    assert!(request(server.http, "POST /v1/sequences/none/ids", "", "").starts_with("HTTP/1.1 404"));
    for quiet in ["/healthz", "/readyz", "/metrics"] {
        assert!(request(server.http, &format!("GET {quiet}"), &traced, "").starts_with("HTTP/1.1 200"));
    }
    let drawn = talk(server.resp, &("INCR orders\r\n".repeat(50) + "QUIT\r\n"));
    assert!(drawn.ends_with("+OK\r\n"), "{drawn}");
    let (_, log) = server.end();
    assert!(!log.contains(SECRET), "{log}");
    let (sent, spans) = all(&received);
    assert!(
        sent.iter().all(|sent| sent.path == "/v1/traces" && sent.authorization.as_deref() == Some(SECRET))
    );
    let resource = sent[0].request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("ids-of-the-shop"));

    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let draws = named("POST /v1/sequences/{name}/ids");
    let [drawn, refused] = draws[..] else { panic!("{spans:#?}") };
    assert_eq!((hex(&drawn.trace_id), hex(&drawn.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!(drawn.kind, SpanKind::Server as i32);
    let of = |span: &Span, key| attribute(&span.attributes, key).unwrap();
    assert_eq!(of(drawn, "http.route"), "/v1/sequences/{name}/ids");
    assert_eq!(
        (of(drawn, "http.request.method"), of(drawn, "http.response.status_code")),
        ("POST".into(), "200".into())
    );
    assert_eq!(of(refused, "http.response.status_code"), "404");
    assert!(refused.parent_span_id.is_empty() && hex(&refused.trace_id) != TRACE, "{refused:?}");

    let [created] = named("create")[..] else { panic!("{spans:#?}") };
    let [request] = named("PUT /v1/sequences/{name}")[..] else { panic!("{spans:#?}") };
    assert_eq!((&created.trace_id, &created.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!(of(created, "sequence"), "orders");
    let refills = named("reserve").len();
    assert!((1..50).contains(&refills), "{refills} refills, and none for each INCR: {spans:#?}");
    let others = ["create", "reserve", "PUT /v1/sequences/{name}", "POST /v1/sequences/{name}/ids"];
    assert!(spans.iter().all(|span| others.contains(&&*span.name)), "{spans:#?}");
}

/// An endpoint for traces gets no path appended. The default service name is `idmill`.
#[test]
fn failed_refill_marks_its_span_as_an_error() {
    let place = Place::new();
    let (endpoint, received) = collector();
    let server = start(&place, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &format!("{endpoint}/here"))]);
    let json = "Content-Type: application/json\r\n";
    assert!(request(server.http, "PUT /v1/sequences/orders", json, "{}").starts_with("HTTP/1.1 201"));
    assert!(talk(server.resp, "INCR orders\r\nQUIT\r\n").starts_with(":1"));
    // Remove the sequence from the store, so that the next refill fails.
    assert_eq!(place.run(&["remove", "orders", "--yes"]).code, 0);
    let drawn = talk(server.resp, &("INCR orders\r\n".repeat(5000) + "QUIT\r\n"));
    assert!(drawn.contains("\r\n-"), "{drawn}");
    server.end();
    let (sent, spans) = all(&received);
    assert!(sent.iter().all(|sent| sent.path == "/here"));
    let resource = sent[0].request.resource_spans[0].resource.clone().unwrap();
    assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("idmill"));
    let is_error =
        |span: &Span| span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32);
    let (failed, well): (Vec<_>, Vec<_>) =
        spans.iter().filter(|span| span.name == "reserve").partition(|span| is_error(span));
    assert!(!failed.is_empty() && !well.is_empty(), "{spans:#?}");
}

#[test]
fn nothing_is_sent_without_an_endpoint_or_if_disabled() {
    let place = Place::new();
    let (endpoint, received) = collector();
    let named = ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str());
    for variables in
        [&[][..], &[named, ("OTEL_SDK_DISABLED", "true")], &[named, ("OTEL_TRACES_EXPORTER", "none")]]
    {
        let server = start(&place, variables);
        assert!(request(server.http, "POST /v1/sequences/none/ids", "", "").starts_with("HTTP/1.1 200"));
        server.end();
        assert!(received.try_recv().is_err(), "{variables:?}");
    }
}

/// An unreachable collector must not affect draws.
#[test]
fn unreachable_collector_does_not_block_requests() {
    let place = Place::new();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = start(&place, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{gone}"))]);
    let json = "Content-Type: application/json\r\n";
    assert!(request(server.http, "PUT /v1/sequences/orders", json, "{}").starts_with("HTTP/1.1 201"));
    assert!(talk(server.resp, "INCR orders\r\nQUIT\r\n").starts_with(":1"));
    let (_, log) = server.end();
    assert!(log.contains("\"ended\""), "{log}");
}

//! A small document service with conditional requests. Every document is a file: its collection, its name and
//! its text. A write syncs a new file and renames it, under a lock of the document, before it is answered.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, RwLock};
use std::thread;

/// The largest number of documents on a page.
const PAGE: usize = 500;

/// Documents by collection and name.
type Documents = BTreeMap<(String, String), String>;

struct Service {
    dir: PathBuf,
    documents: RwLock<Documents>,
    /// Every document has one of these locks, for its conditional writes.
    locks: [Mutex<()>; 64],
}

/// Serves until the process is killed.
pub fn run(address: &str, dir: &Path) -> ! {
    let documents = RwLock::new(load(dir).expect("the documents"));
    let service = Service { dir: dir.into(), documents, locks: [const { Mutex::new(()) }; 64] };
    let service: &'static Service = Box::leak(Box::new(service));
    for client in TcpListener::bind(address).expect("the address").incoming().flatten() {
        thread::spawn(move || service.serve(&client));
    }
    unreachable!("a listener never ends")
}

fn load(dir: &Path) -> io::Result<Documents> {
    let mut documents = Documents::new();
    for file in fs::read_dir(dir)? {
        let path = file?.path();
        if path.extension().is_some_and(|end| end == "doc") {
            let text = fs::read_to_string(path)?;
            let mut parts = text.splitn(3, '\n').map(str::to_owned);
            let mut part = || parts.next().ok_or(io::ErrorKind::InvalidData);
            documents.insert((part()?, part()?), part()?);
        }
    }
    Ok(documents)
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new(); // the same in every process
    value.hash(&mut hasher);
    hasher.finish()
}

/// The tag of a document is a hash of its text.
fn tag(document: &str) -> String {
    format!("\"{:016x}\"", hash(document))
}

impl Service {
    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let (mut input, mut output) = (BufReader::new(client), client);
        loop {
            let mut lines = vec![];
            while lines.last().is_none_or(|line: &String| !line.is_empty()) {
                let mut line = String::new();
                if input.read_line(&mut line)? == 0 {
                    return Ok(());
                }
                lines.push(line.trim_end().to_owned());
            }
            let header = |name: &str| {
                let found = lines.iter().filter_map(|line| line.split_once(':'));
                found.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
            };
            let mut body = vec![0; header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)];
            input.read_exact(&mut body)?;
            let mut request = lines[0].split(' ');
            let (method, target) = (request.next().unwrap_or(""), request.next().unwrap_or(""));
            let condition = header("if-match").or(header("if-none-match")).unwrap_or("");
            let (status, tag, body) = self.answer(method, target, condition, String::from_utf8(body).ok())?;
            let length = body.len();
            let reply = format!("HTTP/1.1 {status}\r\netag: {tag}\r\ncontent-length: {length}\r\n\r\n{body}");
            output.write_all(reply.as_bytes())?;
        }
    }

    fn answer(
        &self,
        method: &str,
        target: &str,
        condition: &str,
        body: Option<String>,
    ) -> io::Result<(&'static str, String, String)> {
        let refused = |status| Ok((status, String::new(), String::new()));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (collection, name) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
        if !["sequences", "records"].contains(&collection) {
            return refused("404 Not Found");
        }
        if name.is_empty() && method == "GET" {
            return Ok(("200 OK", String::new(), self.page(collection, query)));
        }
        let key = (collection.to_owned(), decoded(name.strip_suffix(".json").unwrap_or(name)));
        let _lock = self.locks[hash(&key) as usize % 64].lock();
        let stored = self.documents.read().unwrap().get(&key).cloned();
        let stored_tag = stored.as_deref().map_or(String::new(), tag);
        let holds = if condition == "*" { stored.is_none() } else { stored_tag == condition };
        match (method, stored, body) {
            ("GET", Some(stored), _) => Ok(("200 OK", stored_tag, stored)),
            ("GET", None, _) => refused("404 Not Found"),
            ("PUT" | "DELETE", ..) if condition.is_empty() => refused("428 Precondition Required"),
            ("PUT" | "DELETE", ..) if !holds => refused("412 Precondition Failed"),
            ("PUT", _, Some(new)) => {
                self.save(&key, Some(&new))?;
                let new_tag = tag(&new);
                self.documents.write().unwrap().insert(key, new);
                Ok(("204 No Content", new_tag, String::new()))
            }
            ("DELETE", ..) => {
                self.save(&key, None)?;
                self.documents.write().unwrap().remove(&key);
                refused("204 No Content")
            }
            _ => refused("405 Method Not Allowed"),
        }
    }

    fn save(&self, key: &(String, String), new: Option<&str>) -> io::Result<()> {
        let path = self.dir.join(format!("{:016x}{:016x}.doc", hash(key), hash(&(key, "second half"))));
        if let Some(new) = new {
            let mut file = File::create(path.with_extension("new"))?;
            file.write_all(format!("{}\n{}\n{new}", key.0, key.1).as_bytes())?;
            file.sync_all()?;
            fs::rename(path.with_extension("new"), path)?;
        } else {
            fs::remove_file(path)?;
        }
        File::open(&self.dir)?.sync_all()
    }

    /// A page: `{"documents": [[NAME, DOCUMENT], …], "next": NAME or null}`.
    fn page(&self, collection: &str, query: &str) -> String {
        let value = |key: &str| {
            let found = query.split('&').filter_map(|pair| pair.split_once('=')).find(|pair| pair.0 == key);
            decoded(&found.map_or(String::new(), |pair| pair.1.replace('+', " ")))
        };
        let (prefix, after) = (value("prefix"), value("after"));
        let limit = value("limit").parse().unwrap_or(PAGE).clamp(1, PAGE);
        let documents = self.documents.read().unwrap();
        let from = (collection.to_owned(), after.clone().max(prefix.clone()));
        let mut found = documents.range(from..).filter(|((_, name), _)| *name != after || after.is_empty());
        let fits = |key: &(String, String)| key.0 == collection && key.1.starts_with(&prefix);
        let rows: Vec<_> = found.by_ref().take_while(|(key, _)| fits(key)).take(limit).collect();
        let next = rows.last().filter(|_| rows.len() == limit).map(|(key, _)| &key.1);
        let rows: Vec<_> = rows.iter().map(|(key, text)| serde_json::json!([key.1, text])).collect();
        serde_json::json!({ "documents": rows, "next": next }).to_string()
    }
}

fn decoded(text: &str) -> String {
    idmill_kit::query::decoded(text).unwrap_or_default()
}

//! Certificates for engines that use TLS.

use std::path::Path;

/// Writes a self-signed certificate for 127.0.0.1 to `server.pem`, and its key to `key.pem`. Returns both
/// paths.
pub fn certify(dir: &Path) -> (String, String) {
    certify_for(dir, "127.0.0.1")
}

/// Like [`certify`], for another name or address.
pub fn certify_for(dir: &Path, name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let file = |name: &str| dir.join(name).display().to_string();
    let (certificate, key) = (file("server.pem"), file("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("writes");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("writes");
    (certificate, key)
}

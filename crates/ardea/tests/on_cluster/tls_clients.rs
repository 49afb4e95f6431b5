//! Certificates of a cluster, and clients without one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ardea_network::tls::rustls::pki_types::pem::PemObject;
use ardea_network::tls::rustls::pki_types::{CertificateDer, ServerName};
use ardea_network::tls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes the certificates of an authority and of a machine, with its key, into a folder; returns
/// the settings that name them.
pub fn certify(folder: &Path) -> String {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let signed = params.signed_by(&key, &authority).unwrap();
    let texts = [
        ("authority", authority.pem()),
        ("certificate", signed.pem()),
        ("key", key.serialize_pem()),
    ];
    let settings = texts.map(|(name, text)| {
        let path = folder.join(format!("{name}.pem"));
        fs::write(&path, text).unwrap();
        let user_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&path, user_only).unwrap();
        format!("--set cluster.tls_{name}={}", path.display())
    });
    settings.join(" ")
}

/// Returns the addresses at which these processes listen.
pub fn listeners(pids: &BTreeSet<u32>) -> BTreeSet<SocketAddr> {
    let mut inodes = BTreeSet::new();
    for pid in pids {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
        for file in files.flatten().flatten() {
            let link = fs::read_link(file.path()).unwrap_or_default();
            let link = link.to_string_lossy().into_owned();
            let inode = link
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            inodes.extend(inode.map(String::from));
        }
    }
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_listening = words.get(3) == Some(&"0A");
        let port = words.get(1)?.split_once(':')?.1;
        let is_theirs = inodes.contains(*words.get(9)?);
        (is_listening && is_theirs)
            .then(|| u16::from_str_radix(port, 16).ok())
            .flatten()
    });
    rows.map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
        .collect()
}

const ASKED: &[u8] = b"GET /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";

/// Returns the response to a client without TLS.
pub fn asked_plainly(at: SocketAddr) -> Vec<u8> {
    answer(connect(at))
}

/// Returns the response to a client that trusts the authority but has no certificate.
pub fn asked_without_certificate(at: SocketAddr, authority: &Path) -> Vec<u8> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(authority).unwrap();
    roots.add(authority).unwrap();
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = connect(at);
    answer(Stream::new(&mut tls, &mut stream))
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// Reads until the other end closes or resets the connection.
fn answer(mut stream: impl Read + Write) -> Vec<u8> {
    let mut answer = Vec::new();
    if stream.write_all(ASKED).is_ok() {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..count]);
        }
    }
    answer
}

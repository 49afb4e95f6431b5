//! Tests of valid and invalid certificates, and of the errors they cause.

use std::fs;
use std::path::{Path, PathBuf};

use ardea_core::{Error, ErrorCode};
use ardea_network::tls::rustls::pki_types::ServerName;
use ardea_network::tls::{Tls, TlsConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// A certificate authority, and a folder for the files it signs.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of a test");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Authority { issuer, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Signs a certificate for `name`, and writes it to the files of the returned configuration.
    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> TlsConfig {
        let mut params = CertificateParams::new(vec![name.to_string()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path("host.pem"), signed.pem()).unwrap();
        fs::write(self.path("host.key"), key.serialize_pem()).unwrap();
        TlsConfig {
            authority: self.path("ca.pem"),
            certificate: self.path("host.pem"),
            key: self.path("host.key"),
            name: Some("prod.ardea".into()),
        }
    }

    fn good(&self) -> TlsConfig {
        self.sign("prod.ardea", |_| ())
    }
}

fn refusal(config: TlsConfig) -> Error {
    Tls::load(config).unwrap_err()
}

#[track_caller]
fn says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn files_that_are_not_there_or_hold_something_else_are_named() {
    let authority = Authority::new();
    let good = authority.good();
    let missing = refusal(TlsConfig {
        key: authority.path("other.key"),
        ..good.clone()
    });
    assert_eq!(missing.code(), ErrorCode::ReadFailed);
    says(&missing, &["other.key", "user"]);
    let no_certificate = refusal(TlsConfig {
        certificate: good.key.clone(),
        ..good.clone()
    });
    says(&no_certificate, &[name(&good.key), "no certificate"]);
    let no_key = refusal(TlsConfig {
        key: good.certificate.clone(),
        ..good.clone()
    });
    says(&no_key, &[name(&good.certificate), "no private key"]);
    let text = fs::read_to_string(&good.key).unwrap();
    fs::write(&good.key, text.replace("A", "!")).unwrap();
    let garbled = refusal(good.clone());
    says(&garbled, &[name(&good.key)]);
    assert!(!garbled.to_string().contains('!'), "{garbled}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let authority = Authority::new();
    let config = authority.good();
    fs::write(&config.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    says(
        &refusal(config.clone()),
        &[name(&config.key), "is not that of"],
    );
}

#[test]
fn certificates_that_no_peer_would_accept_are_refused_with_the_reason() {
    let authority = Authority::new();
    let other = Authority::new();
    let mut config = other.good();
    config.authority = authority.path("ca.pem");
    says(&refusal(config), &["another authority"]);
    let expired = authority.sign("prod.ardea", |params| {
        params.not_after = date_time_ymd(2020, 2, 3)
    });
    says(&refusal(expired), &["expired", "2020-02-03"]);
    let early = authority.sign("prod.ardea", |params| {
        params.not_before = date_time_ymd(2120, 2, 3)
    });
    says(&refusal(early), &["2120-02-03", "clocks"]);
    let misnamed = authority.sign("test.ardea", |_| ());
    says(&refusal(misnamed), &["test.ardea", "prod.ardea"]);
    let one_sided = authority.sign("prod.ardea", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    says(&refusal(one_sided), &["clientAuth"]);
}

#[test]
fn without_a_name_of_the_cluster_a_peer_is_called_as_its_host() {
    let authority = Authority::new();
    let mut config = authority.sign("10.1.2.3", |_| ());
    config.name = None;
    let tls = Tls::load(config).unwrap();
    let address: std::net::IpAddr = "10.1.2.3".parse().unwrap();
    assert_eq!(
        tls.peer_name("10.1.2.3").unwrap(),
        ServerName::from(address)
    );
    assert!(tls.peer_name("not a name").is_err());
}

/// Runs the handshake and one message in each direction; returns the results of both sides.
async fn meet(client: &Tls, server: &Tls) -> (Result<(), Error>, Result<(), Error>) {
    let (here, there) = duplex(1 << 16);
    let connecting = async {
        let mut stream = client.connect(here, "host-7").await?;
        talk(&mut stream).await
    };
    let accepting = async {
        let mut stream = server.accept(there, "host-8").await?;
        talk(&mut stream).await
    };
    tokio::join!(connecting, accepting)
}

async fn talk(stream: &mut ardea_network::tls::TlsStream<DuplexStream>) -> Result<(), Error> {
    let told = async {
        stream.write_all(b"hail").await?;
        stream.flush().await?;
        let mut word = [0; 4];
        stream.read_exact(&mut word).await?;
        assert_eq!(&word, b"hail");
        Ok::<_, std::io::Error>(())
    };
    told.await
        .map_err(|error| Error::new(ErrorCode::Network, "no talk").because(error))
}

#[tokio::test]
async fn members_of_a_cluster_talk_and_strangers_do_not() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (client, server) = (
        Tls::load(ours.good()).unwrap(),
        Tls::load(ours.good()).unwrap(),
    );
    let (one, other) = meet(&client, &server).await;
    one.unwrap();
    other.unwrap();
    let stranger = Tls::load(theirs.good()).unwrap();
    let (_, refused) = meet(&stranger, &server).await;
    says(&refused.unwrap_err(), &["host-8"]);
    let (refused, _) = meet(&client, &stranger).await;
    says(&refused.unwrap_err(), &["host-7", "another authority"]);
}

#[tokio::test]
async fn who_speaks_no_tls_is_refused_in_plain_words() {
    let authority = Authority::new();
    let server = Tls::load(authority.good()).unwrap();
    let (mut here, there) = duplex(1 << 16);
    here.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let error = server.accept(there, "somebody").await.unwrap_err();
    says(&error, &["somebody", "doesn't speak TLS"]);
}

#[tokio::test]
async fn renewed_certificates_are_used_and_bad_ones_are_not() {
    let authority = Authority::new();
    let tls = Tls::load(authority.good()).unwrap();
    let before = tls.server();
    tls.reload().unwrap();
    assert!(std::sync::Arc::ptr_eq(&before, &tls.server()));
    // Half written: the certificate is new, the key is still the old one.
    let key = fs::read(authority.path("host.key")).unwrap();
    authority.good();
    let renewed = fs::read(authority.path("host.key")).unwrap();
    fs::write(authority.path("host.key"), key).unwrap();
    says(&tls.reload().unwrap_err(), &["is not that of"]);
    assert!(std::sync::Arc::ptr_eq(&before, &tls.server()));
    assert!(tls.problem().is_some());
    fs::write(authority.path("host.key"), renewed).unwrap();
    tls.reload().unwrap();
    assert!(!std::sync::Arc::ptr_eq(&before, &tls.server()));
    assert!(tls.problem().is_none());
    let (one, other) = meet(&tls, &tls).await;
    one.unwrap();
    other.unwrap();
}

//! Tests of TLS connections.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use ardea_connectors::collections::items;
use ardea_connectors::postgres::{Row, write};
use ardea_core::ErrorCode;
use ardea_pipeline::Pipeline;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::environment::{ask, number, own_server, url};

#[test]
fn the_connection_is_encrypted_to_a_server_of_a_trusted_authority() {
    let Some(server) = own_server() else { return };
    let url = url(&server);
    ask(&url, "create table secret (n bigint)");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_string()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let data = server.folder().join("data");
    let file = server.folder().join("authority.pem");
    fs::write(&file, authority.pem()).unwrap();
    fs::write(data.join("server.crt"), certificate.pem()).unwrap();
    let key_file = data.join("server.key");
    fs::write(&key_file, key.serialize_pem()).unwrap();
    fs::set_permissions(&key_file, fs::Permissions::from_mode(0o600)).unwrap();
    // The files must be owned by the server's user.
    use std::os::unix::fs::MetadataExt;
    let owner = fs::metadata(&data).unwrap();
    for file in ["server.crt", "server.key"] {
        chown(data.join(file), Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    ask(&url, "alter system set ssl = on");
    server.kill();
    server.restart();

    let fill = |n: &u64, row: &mut Row<'_>| {
        row.set(n);
    };
    let p = Pipeline::new("secret");
    let sink = write(&url, "secret", ["n"], fill).authority(&file);
    p.read_from(items(vec![1u64, 2, 3])).write_to(sink);
    p.run().unwrap();
    assert_eq!(number(&url, "select count(*) from secret"), 3);

    // A missing file is reported at once.
    let p = Pipeline::new("secret");
    let sink = write(&url, "secret", ["n"], fill).authority("/nowhere/authority.pem");
    p.read_from(items(vec![1u64])).write_to(sink);
    assert_eq!(
        p.run().expect_err("no such file").code(),
        ErrorCode::ReadFailed
    );
}

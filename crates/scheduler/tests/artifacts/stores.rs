//! Guarantees of all package stores, in a directory and over HTTP, and a server's behaviour with
//! invalid clients and after a crash.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::site::{
    OtherProcess, Site, as_other_process, collected, eventually, eventually_async, package, runtime,
};
use ardea_core::{ErrorCode, Token};
use ardea_scheduler::artifacts::*;

/// Checks the guarantees of all stores.
async fn keeps_its_promises(site: &Site, store: Arc<dyn PackageStore>) {
    let (one, other) = (site.package("one", 10), site.package("other", 2_000_000));
    assert_eq!(store.list().await.expect("nothing yet"), []);
    let error = store.get(one.digest()).await.err().expect("nothing yet");
    assert_eq!(error.code(), ErrorCode::PackageMissing);
    assert!(
        error.to_string().contains(&one.digest().to_string()),
        "{error}"
    );
    assert!(!store.delete(one.digest()).await.expect("nothing to delete"));

    // Concurrent and repeated puts.
    let puts: Vec<_> = (0..4)
        .map(|_| {
            let (store, path) = (Arc::clone(&store), other.path().to_path_buf());
            tokio::spawn(async move { store.put(&Packed::open(path)?).await })
        })
        .collect();
    for put in puts {
        put.await.expect("no panic").expect("put");
    }
    store.put(&one).await.expect("put");
    store.put(&one).await.expect("put again");

    let mut expected = [&one, &other].map(|packed| Stored {
        digest: *packed.digest(),
        bytes: packed.bytes(),
    });
    expected.sort_by_key(|stored| stored.digest);
    assert_eq!(store.list().await.expect("two"), expected);
    for packed in [&one, &other] {
        let bytes = collected(&*store, packed.digest())
            .await
            .expect("all of it");
        assert_eq!(bytes, fs::read(packed.path()).expect("there"));
    }
    assert!(store.delete(one.digest()).await.expect("deleted"));
    assert_eq!(store.list().await.expect("one").len(), 1);

    // A file that has changed since it was packed is refused, and leaves nothing.
    let path = site.root().join("changed");
    fs::copy(one.path(), &path).expect("copied");
    let changed = Packed::open(&path).expect("read");
    let mut bytes = fs::read(&path).expect("there");
    bytes[20] ^= 1;
    fs::write(&path, bytes).expect("written");
    let error = store.put(&changed).await.expect_err("it is something else");
    assert_eq!(error.code(), ErrorCode::PackageCorrupt, "{error}");
    assert!(
        error.to_string().contains(&changed.digest().to_string()),
        "{error}"
    );
    assert_eq!(store.list().await.expect("one").len(), 1);
    site.assert_store_has_only_packages();
}

#[test]
fn a_directory_keeps_its_promises() {
    let site = Site::new();
    runtime().block_on(async {
        let store = DirectoryStore::new(site.store_folder(), &StoreOptions::default());
        keeps_its_promises(&site, Arc::new(store)).await;
    });
}

#[test]
fn a_server_keeps_its_promises() {
    let site = Site::new();
    runtime().block_on(async {
        let server = site.serve(&StoreOptions::default()).await;
        let url = server.url();
        let store = PackageStores::builtin().open(&url, &StoreOptions::default());
        keeps_its_promises(&site, store.expect("a URL")).await;
    });
}

#[test]
fn a_damaged_package_in_a_store_is_replaced_by_the_next_put() {
    let site = Site::new();
    runtime().block_on(async {
        let packed = site.package("a", 5_000);
        let server = site.serve(&StoreOptions::default()).await;
        let http = HttpStore::new(&server.url(), &StoreOptions::default()).expect("a URL");
        let directory = DirectoryStore::new(site.store_folder(), &StoreOptions::default());
        for store in [&http as &dyn PackageStore, &directory] {
            store.put(&packed).await.expect("put");
            site.damage_store(packed.digest());
            let damaged = collected(store, packed.digest()).await.expect("it is read");
            assert_ne!(Digest::of(&damaged), *packed.digest());
            store.put(&packed).await.expect("put again");
            let whole = collected(store, packed.digest()).await.expect("it is read");
            assert_eq!(Digest::of(&whole), *packed.digest());
        }
    });
}

#[test]
fn too_large_packages_are_refused_with_the_limit_on_both_sides() {
    let site = Site::new();
    runtime().block_on(async {
        let packed = site.package("a", 50_000);
        let limits = Limits {
            packed_bytes: 1_000,
            ..Limits::default()
        };
        let small = StoreOptions {
            limits,
            ..StoreOptions::default()
        };
        let server = site.serve(&small).await;
        let store = HttpStore::new(&server.url(), &StoreOptions::default()).expect("a URL");
        let error = store.put(&packed).await.expect_err("too large");
        assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
        assert!(error.to_string().contains("1000"), "{error}");
        site.assert_store_has_only_packages();

        let server = site.serve(&StoreOptions::default()).await;
        let store = HttpStore::new(&server.url(), &small).expect("a URL");
        store
            .put(&packed)
            .await
            .expect("what is sent is not limited");
        let error = store.get(packed.digest()).await.err().expect("too large");
        assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
    });
}

#[test]
fn without_the_token_nothing_is_given_and_nothing_taken() {
    let site = Site::new();
    runtime().block_on(async {
        let with = |token: Option<&str>| StoreOptions {
            token: token.map(Token::new),
            ..StoreOptions::default()
        };
        let server = site.serve(&with(Some("open sesame"))).await;
        let good = HttpStore::new(&server.url(), &with(Some("open sesame"))).expect("a URL");
        let packed = site.package("a", 3_000_000);
        good.put(&packed).await.expect("put");
        for token in [None, Some("open barley"), Some("")] {
            let bad = HttpStore::new(&server.url(), &with(token)).expect("a URL");
            let failures = [
                bad.put(&packed).await.expect_err("no token"),
                bad.get(packed.digest()).await.err().expect("no token"),
                bad.delete(packed.digest()).await.expect_err("no token"),
                bad.list().await.expect_err("no token"),
            ];
            for error in failures {
                assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
                assert!(error.to_string().contains("token"), "{error}");
            }
        }
        assert_eq!(good.list().await.expect("still there").len(), 1);
        // A token that HTTP can't carry.
        let odd = HttpStore::new(&server.url(), &with(Some("a\nb"))).expect("a URL");
        assert_eq!(
            odd.list().await.expect_err("odd").code(),
            ErrorCode::InvalidConfig
        );
    });
}

#[test]
fn strangers_do_no_harm_to_a_server() {
    let site = Site::new();
    runtime().block_on(async {
        let server = site.serve(&StoreOptions::default()).await;
        let packed = site.package("a", 10);
        let url = server.url();
        let address = server.address();
        let asking = tokio::task::spawn_blocking(move || {
            let name = format!("/packages/{}.tar.zst", Digest::of(b"x"));
            let ask = |request: &[u8]| {
                let mut stream = TcpStream::connect(address).expect("it listens");
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .expect("a socket");
                let _ = stream.write_all(request);
                let _ = stream.shutdown(std::net::Shutdown::Write);
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                String::from_utf8_lossy(&answer).into_owned()
            };
            let head = |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes();
            for (request, status) in [
                (head("GET /packages/../../etc/passwd"), "404"),
                (head("GET /packages/%2e%2e%2fsecret.tar.zst"), "404"),
                (head("GET /secret"), "404"),
                (head("POST /packages/"), "405"),
                (head(&format!("PATCH {name}")), "405"),
                (head(&format!("GET {name}")), "404"),
                (
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
                    "400",
                ),
            ] {
                let answer = ask(&request);
                assert!(
                    answer.contains(status),
                    "{}: {answer}",
                    String::from_utf8_lossy(&request)
                );
            }
            ask(&vec![b'G'; 1 << 20]);
            ask(b"");
            // An upload that breaks off, and one with other bytes.
            ask(
                format!("PUT {name} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nxyz")
                    .as_bytes(),
            );
            let answer = ask(format!(
                "PUT {name} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nxyz"
            )
            .as_bytes());
            assert!(
                answer.contains("422") && answer.contains("ARD-632"),
                "{answer}"
            );
            let answer = ask(format!(
                "PUT {name} HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n"
            )
            .as_bytes());
            assert!(answer.contains("413"), "{answer}");
        });
        asking.await.expect("no panic");
        let store = HttpStore::new(&url, &StoreOptions::default()).expect("a URL");
        assert_eq!(store.list().await.expect("it still serves"), []);
        store.put(&packed).await.expect("put");
        site.assert_store_has_only_packages();
    });
}

#[test]
fn a_server_that_is_not_there_is_away() {
    let site = Site::new();
    runtime().block_on(async {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .expect("a port")
            .port();
        let store = HttpStore::new(
            &format!("http://127.0.0.1:{port}"),
            &StoreOptions::default(),
        );
        let store = store.expect("a URL");
        let packed = site.package("a", 10);
        for error in [
            store.put(&packed).await.expect_err("away"),
            store.get(packed.digest()).await.err().expect("away"),
        ] {
            assert_eq!(error.code(), ErrorCode::PackageStoreUnavailable, "{error}");
            assert!(error.to_string().contains(&port.to_string()), "{error}");
        }
    });
}

/// A server that answers each connection with these bytes, and then stays silent or closes.
fn odd_server(answer: Vec<u8>, closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/packages", listener.local_addr().expect("bound"));
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 1_024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(&answer);
            if !closes {
                kept.push(stream);
            }
        }
    });
    url
}

#[test]
fn servers_that_break_off_fall_silent_or_speak_another_language_are_told_apart() {
    let site = Site::new();
    runtime().block_on(async {
        let packed = site.package("a", 10);
        let impatient = StoreOptions {
            timeout: Duration::from_millis(200),
            ..StoreOptions::default()
        };
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of it".to_vec();
        for (answer, closes, code) in [
            (half.clone(), true, ErrorCode::PackageStoreUnavailable),
            (half, false, ErrorCode::PackageStoreUnavailable),
            (Vec::new(), true, ErrorCode::PackageStoreUnavailable),
            (Vec::new(), false, ErrorCode::PackageStoreUnavailable),
            (
                b"220 mail ready\r\n".to_vec(),
                true,
                ErrorCode::PackageStoreUnavailable,
            ),
            (
                b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec(),
                true,
                ErrorCode::PackageStoreUnavailable,
            ),
            (
                b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_vec(),
                true,
                ErrorCode::PackageRefused,
            ),
        ] {
            let shown = String::from_utf8_lossy(&answer).into_owned();
            let store = HttpStore::new(&odd_server(answer, closes), &impatient).expect("a URL");
            let error = collected(&store, packed.digest())
                .await
                .expect_err("not a package");
            assert_eq!(error.code(), code, "{shown}: {error}");
        }
    });
}

/// Serves until it is killed; run by the next test in another process.
#[test]
fn the_server_of_another_process() {
    as_other_process("serve", |arguments| {
        runtime().block_on(async {
            let store = DirectoryStore::new(&arguments[0], &StoreOptions::default());
            let server = PackageServer::bind(&arguments[1], store, &StoreOptions::default()).await;
            let server = server.expect("a free port");
            fs::write(&arguments[2], server.url()).expect("written");
            std::future::pending::<()>().await;
        });
    });
}

#[test]
fn a_server_killed_in_the_middle_of_a_transfer_is_away_and_works_again_when_it_is_back() {
    let site = Site::new();
    runtime().block_on(async {
        // Larger than the buffers of a connection.
        let packed = site.package("large", 64 << 20);
        let address_file = site.root().join("address");
        let start = |address: &str| {
            let _ = fs::remove_file(&address_file);
            let arguments = [site.store_folder(), address.into(), address_file.clone()];
            let server =
                OtherProcess::start("stores::the_server_of_another_process", "serve", &arguments);
            let url = eventually(|| {
                fs::read_to_string(&address_file)
                    .ok()
                    .filter(|url| !url.is_empty())
            });
            (server, url)
        };
        let (server, url) = start("127.0.0.1:0");
        let store = HttpStore::new(&url, &StoreOptions::default()).expect("a URL");
        store.put(&packed).await.expect("put");

        let mut download = store.get(packed.digest()).await.expect("it begins");
        download.next().await.expect("a piece");
        drop(server);
        let error = loop {
            match download.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it can't have come to its end"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), ErrorCode::PackageStoreUnavailable, "{error}");

        // The server has the same address again, so a cache that retries finds it.
        let cache = Cache::open(site.root().join("cache"), CacheConfig::default()).expect("made");
        let address = url
            .trim_start_matches("http://")
            .trim_end_matches("/packages")
            .to_string();
        let (digest, away) = (*packed.digest(), store.clone());
        let fetching = tokio::spawn(async move { cache.fetch(&digest, &away).await });
        let (_server, _) = start(&address);
        let package_here = fetching.await.expect("no panic").expect("fetched");
        assert!(package_here.folder().join(package::FILE).is_file());

        // The server is killed during an upload: nothing of the upload becomes visible.
        store.delete(packed.digest()).await.expect("deleted");
        let uploading = {
            let (store, path) = (store.clone(), packed.path().to_path_buf());
            tokio::spawn(async move { store.put(&Packed::open(path)?).await })
        };
        eventually_async(|| site.is_receiving().then_some(())).await;
        drop(_server);
        match uploading.await.expect("no panic") {
            // The upload completed before the kill.
            Ok(()) => assert_eq!(site.stored(), 1),
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::PackageStoreUnavailable, "{error}");
                assert_eq!(site.stored(), 0);
            }
        }
    });
}

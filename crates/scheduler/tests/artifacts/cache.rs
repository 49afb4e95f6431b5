//! The cache: packages are fetched once, repaired when damaged, evicted, and never removed while in
//! use.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use crate::site::{OtherProcess, Site, as_other_process, eventually_async, package, runtime};
use ardea_core::{Error, ErrorCode};
use ardea_scheduler::artifacts::*;

/// A store that counts its downloads.
#[derive(Debug)]
struct Counting {
    store: DirectoryStore,
    gets: AtomicUsize,
}

impl Counting {
    fn of(site: &Site) -> Arc<Self> {
        Arc::new(Counting {
            store: site.store(),
            gets: AtomicUsize::new(0),
        })
    }

    fn gets(&self) -> usize {
        self.gets.load(Ordering::SeqCst)
    }
}

impl PackageStore for Counting {
    fn place(&self) -> &str {
        self.store.place()
    }
    fn put<'a>(&'a self, package: &'a Packed) -> Pending<'a, ()> {
        self.store.put(package)
    }
    fn get<'a>(&'a self, digest: &'a Digest) -> Pending<'a, Box<dyn Download>> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.store.get(digest)
    }
    fn delete<'a>(&'a self, digest: &'a Digest) -> Pending<'a, bool> {
        self.store.delete(digest)
    }
    fn list(&self) -> Pending<'_, Vec<Stored>> {
        self.store.list()
    }
}

fn cache_of(folder: &Path, keep_bytes: u64) -> Cache {
    let config = CacheConfig {
        keep_bytes,
        retry_timeout: Duration::ZERO,
        ..CacheConfig::default()
    };
    Cache::open(folder, config).expect("made")
}

fn cache(site: &Site) -> Cache {
    cache_of(&site.root().join("cache"), u64::MAX)
}

/// The names in the cache's folder that are neither packages nor locks.
fn leftovers(site: &Site) -> Vec<String> {
    let entries = fs::read_dir(site.root().join("cache"))
        .expect("a folder")
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name != "locks" && name.parse::<Digest>().is_err())
        // A probe of the file system removes the probe files of killed processes after an hour.
        .filter(|name| !name.starts_with(".ardea-probe-"))
        .collect()
}

#[test]
fn the_probe_of_another_process_is_no_lock_that_was_left() {
    let site = Site::new();
    drop(cache(&site));
    let locks = site.root().join("cache/locks");
    let (probe, left) = (locks.join(".ardea-probe-1f-1.part"), locks.join("left.use"));
    for file in [&probe, &left] {
        fs::write(file, "").unwrap();
    }
    drop(cache(&site));
    assert_eq!((probe.exists(), left.exists()), (true, false));
}

#[test]
fn many_who_want_a_package_at_once_fetch_it_once() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 300_000), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let fetches: Vec<_> = (0..20)
            .map(|n| {
                // Separate caches, as in other processes, and shared ones.
                let cache = if n % 2 == 0 {
                    cache(&site)
                } else {
                    cache(&site).clone()
                };
                let (store, digest) = (Arc::clone(&store), *packed.digest());
                tokio::spawn(async move { cache.fetch(&digest, &*store).await })
            })
            .collect();
        for fetch in fetches {
            let package = fetch.await.expect("no panic").expect("fetched");
            assert!(package.folder().join(package::FILE).is_file());
            assert_eq!(package.digest(), packed.digest());
        }
        assert_eq!(store.gets(), 1);
        assert_eq!(leftovers(&site), Vec::<String>::new());
    });
}

/// Fetches a package; run by the next test in other processes.
#[test]
fn the_fetcher_of_another_process() {
    as_other_process("fetch", |arguments| {
        runtime().block_on(async {
            let cache = cache_of(Path::new(&arguments[0]), u64::MAX);
            let store = HttpStore::new(&arguments[1], &StoreOptions::default()).expect("a URL");
            let digest = arguments[2].parse().expect("a digest");
            let package = cache.fetch(&digest, &store).await.expect("fetched");
            assert!(package.folder().join(package::FILE).is_file());
        });
    });
}

#[test]
fn two_processes_that_want_a_package_at_once_both_get_it() {
    let site = Site::new();
    runtime().block_on(async {
        let packed = site.package("a", 20 << 20);
        let server = site.serve(&StoreOptions::default()).await;
        site.store().put(&packed).await.expect("put");
        let arguments = [
            site.root().join("cache"),
            server.url().into(),
            packed.digest().to_string().into(),
        ];
        let fetching = tokio::task::spawn_blocking(move || {
            let test = "cache::the_fetcher_of_another_process";
            let fetchers = [(); 2].map(|()| OtherProcess::start(test, "fetch", &arguments));
            fetchers.map(OtherProcess::ended_well)
        });
        assert_eq!(fetching.await.expect("no panic"), [true, true]);
        assert_eq!(cache(&site).list().len(), 1);
        assert_eq!(leftovers(&site), Vec::<String>::new());
        // A fetched package needs no store any more.
        drop(server);
        let nowhere =
            HttpStore::new("http://127.0.0.1:1", &StoreOptions::default()).expect("a URL");
        cache(&site)
            .fetch(packed.digest(), &nowhere)
            .await
            .expect("it is here");
    });
}

#[test]
fn a_fetcher_that_is_killed_leaves_nothing_that_is_taken_for_a_package() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 30 << 20), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let server = site.serve(&StoreOptions::default()).await;
        let arguments = [
            site.root().join("cache"),
            server.url().into(),
            packed.digest().to_string().into(),
        ];
        fs::create_dir(site.root().join("cache")).expect("made");
        let fetcher =
            OtherProcess::start("cache::the_fetcher_of_another_process", "fetch", &arguments);
        eventually_async(|| (!leftovers(&site).is_empty()).then_some(())).await;
        drop(fetcher);
        let package = cache(&site)
            .fetch(packed.digest(), &*store)
            .await
            .expect("fetched");
        assert!(package.folder().join(package::FILE).is_file());
        assert_eq!(leftovers(&site), Vec::<String>::new());

        // Leftovers of other packages are removed when the next process opens the cache.
        let left = format!(".incoming-{}-x", Digest::of(b"other"));
        fs::create_dir(site.root().join("cache").join(left)).expect("made");
        cache(&site);
        assert_eq!(leftovers(&site), Vec::<String>::new());
    });
}

/// Makes a read-only file writable.
fn writable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

/// A name, and a change to the folder with the files.
type Damage = (&'static str, fn(&Path));

#[test]
fn whatever_is_damaged_is_fetched_again() {
    let damages: [Damage; 7] = [
        ("a byte, and the time put back", |files| {
            let path = files.join(package::FILE);
            let time = fs::metadata(&path)
                .and_then(|m| m.modified())
                .expect("a time");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
            let mut bytes = fs::read(&path).expect("there");
            bytes[7] ^= 1;
            fs::write(&path, bytes).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("open");
            file.set_modified(time).expect("set");
        }),
        ("a size", |files| {
            let path = files.join(package::FILE);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
            fs::write(path, "short").expect("written");
        }),
        ("a file that is gone", |files| {
            fs::remove_file(files.join(package::FILE)).expect("gone")
        }),
        ("a folder that is gone", |files| {
            fs::remove_dir_all(files).expect("gone")
        }),
        ("permissions", |files| {
            let program = files.join(package::PROGRAM);
            fs::set_permissions(program, fs::Permissions::from_mode(0o444)).expect("set");
        }),
        ("a manifest that is cut off", |files| {
            let path = files.with_file_name("manifest.json");
            let text = fs::read(&path).expect("there");
            fs::write(path, &text[..text.len() / 2]).expect("written");
        }),
        ("a manifest that is gone", |files| {
            fs::remove_file(files.with_file_name("manifest.json")).expect("gone");
        }),
    ];
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 3_000), Counting::of(&site));
        store.put(&packed).await.expect("put");
        for (round, (what, damage)) in damages.into_iter().enumerate() {
            let first = cache(&site)
                .fetch(packed.digest(), &*store)
                .await
                .expect("fetched");
            assert_eq!(store.gets(), round + 1, "{what}");
            damage(first.folder());
            // The package is repaired although another handle holds it.
            let again = cache(&site)
                .fetch(packed.digest(), &*store)
                .await
                .expect("mended");
            assert_eq!(store.gets(), round + 2, "{what}");
            let source = site.root().join("sources/a").join(package::FILE);
            assert_eq!(
                fs::read(again.folder().join(package::FILE)).ok(),
                fs::read(source).ok(),
                "{what}"
            );
            again.program(package::PROGRAM).expect("it may be run");
            assert_eq!(leftovers(&site), Vec::<String>::new(), "{what}");
            drop((first, again));
            // The cache is removed, so that the next round starts empty.
            fs::remove_dir_all(site.root().join("cache")).expect("removed");
            store.gets.store(round + 1, Ordering::SeqCst);
        }
    });
}

#[test]
fn a_process_that_has_read_a_package_once_looks_at_sizes_and_times_from_then_on() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 3_000), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let cache = cache(&site);
        let first = cache
            .fetch(packed.digest(), &*store)
            .await
            .expect("fetched");
        cache.fetch(packed.digest(), &*store).await.expect("here");
        cache.fetch(packed.digest(), &*store).await.expect("here");
        assert_eq!(store.gets(), 1);
        let path = first.folder().join(package::FILE);
        writable(&path);
        fs::write(&path, vec![0; 3_000]).expect("written");
        cache.fetch(packed.digest(), &*store).await.expect("mended");
        assert_eq!(store.gets(), 2);
    });
}

#[test]
fn what_is_not_what_its_digest_says_is_never_unpacked() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 3_000), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let whole = fs::read(packed.path()).expect("there");
        let place = site
            .store_folder()
            .join(format!("{}.tar.zst", packed.digest()));
        let mut altered = whole.clone();
        altered[100] ^= 1;
        for bytes in [
            &whole[..whole.len() / 2],
            &whole[..whole.len() - 1],
            &altered,
            b"",
        ] {
            fs::write(&place, bytes).expect("written");
            let error = cache(&site)
                .fetch(packed.digest(), &*store)
                .await
                .expect_err("corrupt");
            assert_eq!(error.code(), ErrorCode::PackageCorrupt, "{error}");
            for digest in [*packed.digest(), Digest::of(bytes)] {
                assert!(error.to_string().contains(&digest.to_string()), "{error}");
            }
            assert_eq!(cache(&site).list(), []);
            assert_eq!(leftovers(&site), Vec::<String>::new());
        }
        // A package of the right digest that is no tar.
        let garbage = site.root().join("garbage");
        fs::write(&garbage, "no tar").expect("written");
        let garbage = Packed::open(&garbage).expect("read");
        store.put(&garbage).await.expect("stores don't look inside");
        let error = cache(&site)
            .fetch(garbage.digest(), &*store)
            .await
            .expect_err("no tar");
        assert_eq!(error.code(), ErrorCode::PackageCorrupt, "{error}");
        let error = cache(&site)
            .fetch(&Digest::of(b"none"), &*store)
            .await
            .expect_err("none");
        assert_eq!(error.code(), ErrorCode::PackageMissing, "{error}");
        assert_eq!(leftovers(&site), Vec::<String>::new());
    });
}

#[test]
fn too_large_packages_are_not_fetched_nor_unpacked() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 300_000), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let limits = Limits::default();
        for limits in [
            Limits {
                packed_bytes: 1_000,
                ..limits
            },
            Limits {
                unpacked_bytes: 1_000,
                ..limits
            },
            Limits {
                entries: 3,
                ..limits
            },
        ] {
            let config = CacheConfig {
                limits,
                ..CacheConfig::default()
            };
            let cache = Cache::open(site.root().join("cache"), config).expect("made");
            let error: Error = cache
                .fetch(packed.digest(), &*store)
                .await
                .expect_err("too large");
            assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
            assert_eq!(leftovers(&site), Vec::<String>::new());
        }
    });
}

/// Makes a package look as if it was last used `seconds` seconds ago.
fn used_ago(site: &Site, packed: &Packed, seconds: u64) {
    let path = site
        .root()
        .join("cache")
        .join(packed.digest().to_string())
        .join("manifest.json");
    let file = fs::File::options().write(true).open(path).expect("there");
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
        .expect("set");
}

#[test]
fn the_package_that_was_not_used_for_longest_goes_unless_it_is_in_use() {
    let site = Site::new();
    runtime().block_on(async {
        let store = Counting::of(&site);
        let packages = ["a", "b", "c", "d"].map(|name| site.package(name, 10_000));
        for packed in &packages {
            store.put(packed).await.expect("put");
        }
        let [a, b, c, d] = &packages;
        // Room for two and a half packages.
        let cache = cache_of(&site.root().join("cache"), 25_000);
        let held = cache.fetch(a.digest(), &*store).await.expect("fetched");
        drop(cache.fetch(b.digest(), &*store).await.expect("fetched"));
        used_ago(&site, a, 1_000);
        used_ago(&site, b, 100);
        let is_here = |packed: &Packed| {
            cache
                .list()
                .iter()
                .any(|(digest, _)| digest == packed.digest())
        };

        // a is older, but held: b is evicted.
        drop(cache.fetch(c.digest(), &*store).await.expect("fetched"));
        assert!(is_here(a) && !is_here(b) && is_here(c));
        // Released: now it is evicted. Others are ordered by their last use.
        used_ago(&site, c, 10);
        drop(held);
        drop(cache.fetch(d.digest(), &*store).await.expect("fetched"));
        assert!(!is_here(a) && is_here(c) && is_here(d));
        // An evicted package can be fetched again.
        cache.fetch(b.digest(), &*store).await.expect("fetched");
        assert_eq!(leftovers(&site), Vec::<String>::new());
        let locks = fs::read_dir(site.root().join("cache/locks"))
            .expect("a folder")
            .count();
        assert!(locks <= 2 * 2, "{locks} locks are left");
    });
}

#[test]
fn a_process_that_was_started_from_a_package_keeps_it() {
    let site = Site::new();
    runtime().block_on(async {
        let store = Counting::of(&site);
        let (a, b) = (site.package("a", 10_000), site.package("b", 10_000));
        store.put(&a).await.expect("put");
        store.put(&b).await.expect("put");
        let cache = cache_of(&site.root().join("cache"), 0);
        let held = cache.fetch(a.digest(), &*store).await.expect("fetched");
        let program = held.program(package::PROGRAM).expect("it may be run");
        let started = held.spawning(|| {
            // It ends when its standard input does.
            Command::new(program)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
        });
        let mut child = started.expect("handed on").expect("started");
        drop(held);
        let is_here = |packed: &Packed| {
            cache
                .list()
                .iter()
                .any(|(digest, _)| digest == packed.digest())
        };
        drop(cache.fetch(b.digest(), &*store).await.expect("fetched"));
        assert!(is_here(&a), "a process that lives holds it");
        drop(child.stdin.take());
        child.wait().expect("a child");
        used_ago(&site, &b, 100);
        drop(cache.fetch(b.digest(), &*store).await.expect("here"));
        store.put(&site.package("c", 10)).await.expect("put");
        drop(
            cache
                .fetch(site.package("c", 10).digest(), &*store)
                .await
                .expect("fetched"),
        );
        assert!(!is_here(&a), "nobody holds it");
    });
}

#[test]
fn programs_are_found_by_name_and_only_within_the_package() {
    let site = Site::new();
    runtime().block_on(async {
        let (packed, store) = (site.package("a", 10), Counting::of(&site));
        store.put(&packed).await.expect("put");
        let package = cache(&site)
            .fetch(packed.digest(), &*store)
            .await
            .expect("fetched");
        let program = package.program(package::PROGRAM).expect("it is one");
        assert!(program.is_absolute() && program.is_file());
        for name in ["bin/none", package::FILE, "bin", "../../x", "/bin/sh", ""] {
            let error = package.program(name).expect_err(name);
            assert_eq!(error.code(), ErrorCode::PackageRefused, "{error}");
        }
    });
}

#[test]
fn whatever_is_fetched_and_removed_meanwhile_what_is_held_is_whole() {
    let site = Site::new();
    runtime().block_on(async {
        let store = Counting::of(&site);
        let mut digests = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let packed = site.package(name, 20_000);
            store.put(&packed).await.expect("put");
            digests.push(*packed.digest());
        }
        let tasks: Vec<_> = (0..6)
            .map(|task| {
                // As in separate processes, with room for one and a half packages.
                let cache = cache_of(&site.root().join("cache"), 30_000);
                let (store, digests) = (Arc::clone(&store), digests.clone());
                tokio::spawn(async move {
                    for round in 0..25 {
                        let digest = &digests[(task * 7 + round * (task + 1)) % digests.len()];
                        let package = cache.fetch(digest, &*store).await.expect("fetched");
                        for _ in 0..20 {
                            let content = fs::read(package.folder().join(package::FILE));
                            assert_eq!(content.map(|bytes| bytes.len()).ok(), Some(20_000));
                            tokio::task::yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(leftovers(&site), Vec::<String>::new());
        // Only the locks of cached packages are left.
        let cache = cache(&site);
        let locks = fs::read_dir(site.root().join("cache/locks"))
            .expect("a folder")
            .count();
        assert!(locks <= 2 * cache.list().len(), "{locks} locks");
    });
}

//! Test environment: servers, and the objects of a test.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use ardea_bucket::{Bucket, BucketPrefix};
use ardea_metastore::conformance::{Server, Skipped};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// Starts an object store. If this fails, prints a message and returns `None`.
pub fn own_server() -> Option<Server> {
    match Server::start("minio.sh") {
        Ok(server) => Some(server),
        Err(Skipped(why)) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED tests of object stores: {why}");
            None
        }
    }
}

fn shared_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| own_server().expect("a server, as in the calling process"))
}

/// A prefix of a bucket that is used by one test.
pub struct Folder {
    address: String,
    prefix: String,
    bucket: Bucket,
}

impl Folder {
    /// Creates a prefix on the shared server.
    pub fn new() -> Folder {
        Folder::at(shared_server())
    }

    /// Creates a prefix on a server.
    pub fn at(server: &Server) -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let address = server.address().to_string();
        let all = BucketPrefix::parse(&format!("s3://states?endpoint=http://{address}"));
        let bucket = Bucket::open(&all.expect("an address"), None, "tests").expect("a client");
        Folder {
            address,
            prefix,
            bucket,
        }
    }

    /// Returns the address of an object, or of the prefix for an empty name.
    pub fn path(&self, name: &str) -> String {
        format!(
            "s3://states/{}/{name}?endpoint=http://{}",
            self.prefix, self.address
        )
    }

    /// Returns the display name of an object.
    pub fn shown(&self, name: &str) -> String {
        format!("s3://states/{}/{name}", self.prefix)
    }

    fn object(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    /// Writes an object.
    pub fn put(&self, name: &str, content: impl Into<Vec<u8>>) {
        let (store, object, content) = (self.bucket.store(), self.object(name), content.into());
        let put = self
            .bucket
            .wait(async move { store.put(&object, content.into()).await });
        put.expect("answered").expect("written");
    }

    /// Removes an object.
    pub fn remove(&self, name: &str) {
        let (store, object) = (self.bucket.store(), self.object(name));
        let removed = self.bucket.wait(async move { store.delete(&object).await });
        removed.expect("answered").expect("removed");
    }

    /// Returns the names and contents of all objects, in the order of their names.
    pub fn objects(&self) -> Vec<(String, Vec<u8>)> {
        let (store, prefix) = (self.bucket.store(), Path::from(self.prefix.clone()));
        let read = self.bucket.wait(async move {
            let listed = store.list_with_delimiter(Some(&prefix)).await?.objects;
            let mut objects = Vec::new();
            for object in listed {
                let name = object.location.filename().unwrap_or_default().to_string();
                let content = store.get(&object.location).await?.bytes().await?;
                objects.push((name, content.to_vec()));
            }
            Ok::<_, object_store::Error>(objects)
        });
        let mut objects = read.expect("answered").expect("read");
        objects.sort();
        objects
    }

    /// Returns the keys of the parts of unpublished objects, below the prefix.
    pub fn staged(&self) -> Vec<String> {
        let (store, folder) = (self.bucket.store(), self.object(".ardea-staging"));
        let begin = format!("{}/", self.prefix);
        let listed = self.bucket.wait(async move {
            let areas = store.list_with_delimiter(Some(&folder)).await?;
            let mut keys = Vec::new();
            for area in areas.common_prefixes {
                let parts = store.list_with_delimiter(Some(&area)).await?.objects;
                keys.extend(parts.into_iter().map(|part| part.location.to_string()));
            }
            Ok::<_, object_store::Error>(keys)
        });
        let keys = listed.expect("answered").expect("listed");
        let names = keys.iter().filter_map(|key| key.strip_prefix(&begin));
        names.map(str::to_string).collect()
    }

    /// Returns the lines of all objects, sorted as numbers.
    pub fn numbers(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (_, content) in self.objects() {
            let text = String::from_utf8(content).expect("text");
            numbers.extend(
                text.lines()
                    .map(|line| line.parse::<u64>().expect("a number")),
            );
        }
        numbers.sort_unstable();
        numbers
    }
}

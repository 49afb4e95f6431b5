//! Random operations on files and on a model in memory: the results and trees must be equal, and
//! versions must grow.

use ardea_core::{ErrorCode, Result};
use ardea_metastore::{
    Expected, FileState, MetadataStore, Session, SessionEnding, StateOptions, StatePath, Version,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Few names, so that operations conflict.
const PATHS: [&str; 7] = ["/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/e/f/g"];

/// An operation.
#[derive(Clone, Debug)]
enum Operation {
    Set(usize, u8, Condition),
    Delete(usize, Condition),
    OpenSession,
    Create(usize, u8),
    CloseSession,
    DropSession,
    Reopen,
}

/// The condition of an operation.
#[derive(Clone, Copy, Debug)]
enum Condition {
    None,
    Absent,
    Present,
    Stale,
    Damaged,
}

fn operation() -> impl Strategy<Value = Operation> {
    let path = 0..PATHS.len();
    let condition = prop_oneof![
        3 => Just(Condition::None),
        2 => Just(Condition::Absent),
        3 => Just(Condition::Present),
        1 => Just(Condition::Stale),
        1 => Just(Condition::Damaged),
    ];
    prop_oneof![
        8 => (path.clone(), any::<u8>(), condition.clone())
            .prop_map(|(path, value, condition)| Operation::Set(path, value, condition)),
        6 => (path.clone(), condition).prop_map(|(path, condition)| Operation::Delete(path, condition)),
        2 => Just(Operation::OpenSession),
        4 => (path, any::<u8>()).prop_map(|(path, value)| Operation::Create(path, value)),
        1 => Just(Operation::CloseSession),
        1 => Just(Operation::DropSession),
        1 => Just(Operation::Reopen),
    ]
}

#[derive(Clone, PartialEq, Debug)]
struct Held {
    value: Vec<u8>,
    version: Version,
    is_of_session: bool,
}

/// The expected tree.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<StatePath, Held>,
    newest: Option<Version>,
}

impl Model {
    fn children(&self, path: &StatePath) -> Vec<String> {
        let below = self
            .nodes
            .keys()
            .filter(|node| node.parent().as_ref() == Some(path));
        below
            .filter_map(|node| node.name().map(str::to_string))
            .collect()
    }

    fn version(&self, path: &StatePath) -> Option<Version> {
        self.nodes.get(path).map(|held| held.version)
    }

    fn is_as_expected(&self, path: &StatePath, expected: Expected) -> bool {
        match expected {
            Expected::Any => true,
            Expected::Absent => !self.nodes.contains_key(path),
            Expected::Version(version) => self.version(path) == Some(version),
            Expected::Damaged => false,
        }
    }

    /// Converts a condition for this node.
    fn expected(&self, path: &StatePath, condition: Condition) -> Expected {
        match condition {
            Condition::None => Expected::Any,
            Condition::Absent => Expected::Absent,
            Condition::Present => self
                .version(path)
                .map_or(Expected::Absent, Expected::Version),
            Condition::Stale => Expected::Version(Version::new(0)),
            Condition::Damaged => Expected::Damaged,
        }
    }

    /// Returns the expected error of a write.
    fn objection(&self, path: &StatePath, expected: Expected) -> Option<ErrorCode> {
        let is_as_expected = self.is_as_expected(path, expected);
        let is_below_session = path.ancestors().any(|above| {
            self.nodes
                .get(&above)
                .is_some_and(|held| held.is_of_session)
        });
        if !is_as_expected {
            Some(ErrorCode::MetastoreConflict)
        } else if is_below_session {
            Some(ErrorCode::MetastoreRefused)
        } else {
            None
        }
    }

    fn write(&mut self, path: &StatePath, value: u8, version: Version, is_of_session: bool) {
        assert!(
            Some(version) > self.newest,
            "{version} after {:?}",
            self.newest
        );
        self.newest = Some(version);
        for above in path.ancestors() {
            self.nodes.entry(above).or_insert(Held {
                value: Vec::new(),
                version,
                is_of_session: false,
            });
        }
        let held = self.nodes.entry(path.clone()).or_insert(Held {
            value: Vec::new(),
            version,
            is_of_session,
        });
        held.value = vec![value];
        held.version = version;
    }

    fn end_session(&mut self) {
        self.nodes.retain(|_, held| !held.is_of_session);
    }
}

/// A metadata store and its model.
struct Pair {
    folder: tempfile::TempDir,
    state: FileState,
    session: Option<(Box<dyn Session>, SessionEnding)>,
    model: Model,
}

impl Pair {
    async fn new() -> Pair {
        let folder = tempfile::tempdir().expect("a folder");
        let state = open(&folder).await;
        Pair {
            folder,
            state,
            session: None,
            model: Model::default(),
        }
    }

    async fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Set(path, value, condition) => self.set(&node(path), value, condition).await,
            Operation::Delete(path, condition) => self.delete(&node(path), condition).await,
            Operation::OpenSession => {
                self.model.end_session();
                self.session = None;
                self.session = Some(self.state.open_session().await.expect("a session"));
            }
            Operation::Create(path, value) => self.create(&node(path), value).await,
            Operation::CloseSession => {
                if let Some((session, _)) = self.session.take() {
                    session.close().await.expect("closed");
                    self.model.end_session();
                }
            }
            Operation::DropSession => {
                self.session = None;
                self.model.end_session();
            }
            Operation::Reopen => self.state = open(&self.folder).await,
        }
    }

    async fn set(&mut self, path: &StatePath, value: u8, condition: Condition) {
        let expected = self.model.expected(path, condition);
        let objection = self.model.objection(path, expected);
        match self.state.set(path, &[value], expected).await {
            Ok(version) => {
                assert_eq!(objection, None);
                self.model.write(path, value, version, false);
            }
            error => assert_eq!(code(error), objection),
        }
    }

    async fn create(&mut self, path: &StatePath, value: u8) {
        let Some((session, _)) = &self.session else {
            return;
        };
        let objection = self.model.objection(path, Expected::Absent);
        match session.create(path, &[value]).await {
            Ok(version) => {
                assert_eq!(objection, None);
                self.model.write(path, value, version, true);
            }
            error => assert_eq!(code(error), objection),
        }
    }

    async fn delete(&mut self, path: &StatePath, condition: Condition) {
        let expected = self.model.expected(path, condition);
        let objection = if !self.model.is_as_expected(path, expected) {
            Some(ErrorCode::MetastoreConflict)
        } else if self.model.nodes.contains_key(path) && !self.model.children(path).is_empty() {
            Some(ErrorCode::MetastoreRefused)
        } else {
            self.model.nodes.remove(path);
            None
        };
        assert_eq!(code(self.state.delete(path, expected).await), objection);
    }

    /// Checks that the whole tree is as expected.
    async fn compare(&self) {
        for path in PATHS.map(|path| StatePath::parse(path).expect("a path")) {
            let found = self.state.get(&path).await.expect("read").map(|node| Held {
                value: node.value.to_vec(),
                version: node.version,
                is_of_session: node.session.is_some(),
            });
            assert_eq!(found.as_ref(), self.model.nodes.get(&path), "{path}");
            let children = self.state.children(&path).await.expect("read");
            assert_eq!(children, self.model.children(&path), "{path}");
        }
    }
}

async fn open(folder: &tempfile::TempDir) -> FileState {
    let state = FileState::open(folder.path(), StateOptions::default());
    state.await.expect("it opens")
}

fn node(index: usize) -> StatePath {
    StatePath::parse(PATHS[index]).expect("a path")
}

fn code<T>(result: Result<T>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn files_do_what_the_model_does(operations in proptest::collection::vec(operation(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut pair = Pair::new().await;
            for operation in operations {
                pair.apply(operation).await;
                pair.compare().await;
            }
        });
    }
}

//! Compiled schemas of Protocol Buffers.

use std::collections::HashMap;

use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};
use protox::Compiler;
use protox::file::{File, FileResolver, GoogleFileResolver};

use crate::kafka::schema_registry::RegisteredSchema;

/// The name of the file of a schema, which has none in a registry.
const FILE: &str = "schema.proto";

/// A compiled schema.
pub(super) struct ProtobufSchema {
    pool: DescriptorPool,
}

/// The texts of the files that a schema imports.
struct SchemaFiles(HashMap<String, String>);

impl FileResolver for SchemaFiles {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => GoogleFileResolver::new().open_file(name),
        }
    }
}

impl ProtobufSchema {
    /// Compiles a schema and its imports.
    ///
    /// # Errors
    /// The reason why the text is no schema.
    pub fn compile(text: &str, imports: &[(String, String)]) -> Result<Self, String> {
        let mut files: HashMap<_, _> = imports.iter().cloned().collect();
        files.insert(FILE.to_string(), text.to_string());
        let mut compiler = Compiler::with_file_resolver(SchemaFiles(files));
        compiler.include_imports(true);
        let compiled = compiler.open_file(FILE);
        compiled.map_err(|error| error.to_string())?;
        Ok(ProtobufSchema {
            pool: compiler.descriptor_pool(),
        })
    }

    pub fn of_registered(schema: &RegisteredSchema) -> Result<Self, String> {
        ProtobufSchema::compile(&schema.text, &schema.references)
    }

    fn file(&self) -> Result<FileDescriptor, String> {
        let file = self.pool.get_file_by_name(FILE);
        file.ok_or_else(|| "the compiler has no file for it".to_string())
    }

    /// Returns the message type at a place in the file: the indexes of the types that contain it,
    /// the outermost first, and its own.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn message_at(&self, indexes: &[usize]) -> Result<MessageDescriptor, String> {
        let missing = || format!("its schema has no message type at {indexes:?}");
        let (first, nested) = indexes.split_first().ok_or_else(missing)?;
        let file = self.file()?;
        let mut message = file.messages().nth(*first).ok_or_else(missing)?;
        for index in nested {
            let child = message.child_messages().nth(*index);
            message = child.ok_or_else(missing)?;
        }
        Ok(message)
    }

    /// Returns the place of a message type by its full name, or of the first one in the file.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn indexes_of(&self, name: Option<&str>) -> Result<Vec<usize>, String> {
        let Some(name) = name else {
            return self.message_at(&[0]).map(|_| vec![0]);
        };
        let mut path = Vec::new();
        match position(self.file()?.messages(), name, &mut path) {
            true => Ok(path),
            false => Err(format!("it has no message type {name}")),
        }
    }
}

/// Finds a message type by its full name among `messages` and those nested in them. Sets `path` to
/// its place, and returns true if it is there.
fn position(
    messages: impl Iterator<Item = MessageDescriptor>,
    name: &str,
    path: &mut Vec<usize>,
) -> bool {
    for (index, message) in messages.enumerate() {
        path.push(index);
        let children = message.child_messages().collect::<Vec<_>>();
        if message.full_name() == name || position(children.into_iter(), name, path) {
            return true;
        }
        path.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"
        syntax = "proto3";
        package p;
        import "google/protobuf/timestamp.proto";
        import "other.proto";
        message A { message C { int32 n = 1; } C c = 1; google.protobuf.Timestamp at = 2; }
        message B { q.Other other = 1; }
    "#;

    const OTHER: &str = r#"syntax = "proto3"; package q; message Other { string text = 1; }"#;

    #[test]
    fn a_type_is_found_by_its_place_and_its_name() {
        let imports = [("other.proto".to_string(), OTHER.to_string())];
        let schema = ProtobufSchema::compile(SCHEMA, &imports).unwrap();
        for (indexes, name) in [(&[0][..], "p.A"), (&[0, 0], "p.A.C"), (&[1], "p.B")] {
            assert_eq!(schema.message_at(indexes).unwrap().full_name(), name);
            assert_eq!(schema.indexes_of(Some(name)).unwrap(), indexes);
        }
        assert_eq!(schema.indexes_of(None).unwrap(), [0]);
        assert!(schema.message_at(&[2]).is_err() && schema.message_at(&[1, 0]).is_err());
        assert!(schema.indexes_of(Some("p.D")).is_err());
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        assert!(ProtobufSchema::compile("{}", &[]).is_err());
        assert!(
            ProtobufSchema::compile(SCHEMA, &[]).is_err(),
            "an import is missing"
        );
    }
}

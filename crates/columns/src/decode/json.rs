//! JSON lines.

use ardea_core::{Error, ErrorCode, Result};

use super::builder::Columns;
use super::json_scanner::JsonScanner;
use super::{FieldPath, Reason};

/// The fields of an object that are decoded.
#[derive(Clone, Debug, Default)]
struct FieldTree {
    fields: Vec<(Box<[u8]>, Target)>,
}

/// The use of a field.
#[derive(Clone, Debug)]
enum Target {
    /// The value goes to the column with this index.
    Column(usize),
    /// The value is an object with such fields.
    Object(FieldTree),
}

impl FieldTree {
    /// Adds a path to a column.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if the path is that of another column, or leads through one.
    fn add(&mut self, path: &FieldPath, keys: &[String], column: usize) -> Result<()> {
        let invalid = || {
            let what = format!("the path {path} is that of two columns, or leads through a column");
            Error::new(ErrorCode::InvalidJob, what).hint("give every column a path of its own")
        };
        let Some((key, inner)) = keys.split_first() else {
            return Err(
                Error::new(ErrorCode::InvalidJob, "a column has an empty path")
                    .hint("name the field of the column"),
            );
        };
        let found = self
            .fields
            .iter_mut()
            .find(|(name, _)| **name == *key.as_bytes());
        match (found, inner) {
            (None, []) => {
                let target = Target::Column(column);
                self.fields.push((key.as_bytes().into(), target));
                Ok(())
            }
            (None, inner) => {
                let mut wanted = FieldTree::default();
                wanted.add(path, inner, column)?;
                self.fields
                    .push((key.as_bytes().into(), Target::Object(wanted)));
                Ok(())
            }
            (Some((_, Target::Object(wanted))), inner @ [_, ..]) => wanted.add(path, inner, column),
            _ => Err(invalid()),
        }
    }

    /// Returns the use of a field. `next` is the index after the field found last: most lines have
    /// their fields in the order of the columns.
    #[inline]
    fn find(&self, key: &[u8], next: &mut usize) -> Option<&Target> {
        let (before, after) = self.fields.split_at_checked(*next)?;
        for (index, (name, target)) in after.iter().enumerate() {
            if **name == *key {
                *next += index + 1;
                return Some(target);
            }
        }
        let index = before.iter().position(|(name, _)| **name == *key)?;
        *next = index + 1;
        Some(&before[index].1)
    }
}

/// The reader of JSON objects, one per line.
#[derive(Clone, Debug)]
pub(super) struct JsonReader {
    root: FieldTree,
}

impl JsonReader {
    /// Creates a reader of the fields at `paths`, one per column.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if two paths overlap, or a path is empty.
    pub(super) fn new(paths: &[FieldPath]) -> Result<Self> {
        let mut root = FieldTree::default();
        for (column, path) in paths.iter().enumerate() {
            root.add(path, &path.0, column)?;
        }
        Ok(JsonReader { root })
    }

    /// Reads a line into the current row. Returns false if it is blank.
    #[inline]
    pub(super) fn read(&self, line: &[u8], columns: &mut Columns) -> Result<bool, Reason> {
        let mut scanner = JsonScanner::new(line);
        match scanner.peek() {
            Some(b'{') => object(&mut scanner, &self.root, columns, 0)?,
            None => return Ok(false),
            Some(_) => return Err(scanner.invalid("expected an object")),
        }
        scanner.expect_end()?;
        Ok(true)
    }
}

/// Reads an object, `depth` levels deep, into the current row.
fn object(
    scanner: &mut JsonScanner<'_>,
    wanted: &FieldTree,
    columns: &mut Columns,
    depth: u32,
) -> Result<(), Reason> {
    let depth = scanner.enter(depth)?;
    if scanner.accept(b'}') {
        return Ok(());
    }
    let mut next = 0;
    loop {
        scanner.expect(b'"')?;
        let key = scanner.text()?;
        scanner.expect(b':')?;
        match wanted.find(key.bytes(), &mut next) {
            None => scanner.skip(depth)?,
            Some(Target::Column(index)) => scanner.value(columns.next_value(*index)?)?,
            Some(Target::Object(inner)) => match scanner.peek() {
                Some(b'{') => object(scanner, inner, columns, depth)?,
                // The columns within it are missing.
                Some(b'n') => scanner.skip(depth)?,
                _ => {
                    let name = String::from_utf8_lossy(key.bytes()).into_owned();
                    return Err(format!("field {name:?}: expected an object").into());
                }
            },
        }
        if !scanner.accept(b',') {
            return scanner.expect(b'}');
        }
    }
}

//! JSON lines.

use ardea_core::Result;

use super::builder::Columns;
use super::field_tree::{FieldTree, Target};
use super::json_scanner::JsonScanner;
use super::{FieldPath, Reason};

/// The reader of JSON objects, one per line.
#[derive(Clone, Debug)]
pub(super) struct JsonReader {
    pub(super) root: FieldTree,
}

impl JsonReader {
    /// Creates a reader of the fields at `paths`, one per column.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if two paths overlap, or a path is empty.
    pub(super) fn new(paths: &[FieldPath]) -> Result<Self> {
        let root = FieldTree::new(paths)?;
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

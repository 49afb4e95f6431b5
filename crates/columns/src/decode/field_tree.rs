//! The fields of records that are decoded.

use ardea_core::{Error, ErrorCode, Result};

use super::FieldPath;

/// The fields of an object that are decoded.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldTree {
    fields: Vec<(Box<[u8]>, Target)>,
}

/// The use of a field.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// The value goes to the column with this index.
    Column(usize),
    /// The value is an object with such fields.
    Object(FieldTree),
}

impl FieldTree {
    /// Creates the tree of the fields at `paths`, one per column.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidJob`] if two paths overlap, or a path is empty.
    pub(super) fn new(paths: &[FieldPath]) -> Result<Self> {
        let mut root = FieldTree::default();
        for (column, path) in paths.iter().enumerate() {
            root.add(path, &path.0, column)?;
        }
        Ok(root)
    }

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
    pub(super) fn find(&self, key: &[u8], next: &mut usize) -> Option<&Target> {
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

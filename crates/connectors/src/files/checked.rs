//! A plain file that is read from front to back, and notices when the bytes that were read are not there any more.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::decompressed::Damage;
use crate::place::Passed;

/// Reads a plain file. With each read it compares the last bytes before its position with those that it had read there,
/// so that a truncated and rewritten file is noticed whatever length it has by then.
///
/// Files that the system makes up (`/proc`, `/sys`) are not compared: each look at them shows something else.
pub(super) struct Checked {
    file: File,
    position: u64,
    /// The last of the bytes before the position.
    passed: Passed,
    /// The length that it has had at least, if it may not become shorter.
    length: Option<u64>,
}

/// The state of a file, compared with what was read of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The bytes that were read are there.
    Intact,
    /// It is shorter than it was.
    Shorter(u64),
    /// It has other bytes in the place of those that were read.
    Rewritten,
}

impl Checked {
    /// Reads a file that may not become shorter, from the position on.
    pub fn new(file: File, position: u64) -> io::Result<Self> {
        let mut checked = Checked {
            length: Some(file.metadata()?.len()),
            ..Checked::growing(file)
        };
        checked.go_to(position)?;
        Ok(checked)
    }

    /// Reads a file that may lose what has not been read yet, from its beginning.
    pub fn growing(file: File) -> Self {
        Checked {
            file,
            position: 0,
            passed: Passed::default(),
            length: None,
        }
    }

    /// Goes to a position. If that is behind the file's end, nothing is compared until something has been read.
    pub fn go_to(&mut self, position: u64) -> io::Result<()> {
        self.position = position;
        self.passed = Passed::default();
        let kept = usize::try_from(position).unwrap_or(usize::MAX);
        let mut before = vec![0; Passed::KEPT.min(kept)];
        let from = position - before.len() as u64;
        match self.file.read_exact_at(&mut before, from) {
            Ok(()) => self.passed.add(&before),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Goes to the beginning, where nothing has been read.
    pub fn restart(&mut self) {
        self.position = 0;
        self.passed = Passed::default();
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// The bytes before the position that are compared.
    pub fn passed(&self) -> &Passed {
        &self.passed
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Compares the file with what was read of it.
    pub fn condition(&mut self) -> io::Result<Condition> {
        let metadata = self.file.metadata()?;
        let length = metadata.len();
        if length < self.length.unwrap_or(self.position) {
            return Ok(Condition::Shorter(length));
        }
        self.length = self.length.map(|_| length);
        // Of these the system says that they take up no space.
        let is_made_up = metadata.blocks() == 0;
        Ok(match is_made_up || self.has_passed()? {
            true => Condition::Intact,
            false => Condition::Rewritten,
        })
    }

    /// Returns true if the bytes before the position are those that were read.
    fn has_passed(&self) -> io::Result<bool> {
        let expected = self.passed.last();
        let mut before = [0; Passed::KEPT];
        let before = &mut before[..expected.len()];
        match self
            .file
            .read_exact_at(before, self.position - expected.len() as u64)
        {
            Ok(()) => Ok(before == expected),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads at the position, without looking at the bytes before it; the caller does.
    pub fn read_on(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, self.position)
    }

    /// These bytes were read at the position.
    pub fn advance(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.passed.add(bytes);
    }
}

impl Read for Checked {
    /// # Errors
    /// The system's, and [`Damage`] if the file has changed before the position.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_on(buffer)?;
        // Compared behind the read: so the bytes are not of a file that was rewritten meanwhile.
        let position = self.position;
        let damage = match self.condition()? {
            Condition::Intact => {
                self.advance(&buffer[..read]);
                return Ok(read);
            }
            Condition::Shorter(length) => format!(
                "it has become shorter while it was read: {length} bytes, of which {position} had been read"
            ),
            Condition::Rewritten => {
                format!(
                    "it was rewritten while it was read: the bytes before byte {position} have changed"
                )
            }
        };
        Err(io::Error::other(Damage::transient(damage)))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn opened(content: &str) -> (tempfile::NamedTempFile, Checked) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let checked = Checked::new(File::open(file.path()).unwrap(), 0).unwrap();
        (file, checked)
    }

    #[test]
    fn a_file_that_grows_is_read_on_and_one_that_changes_is_not() {
        let (file, mut checked) = opened("one\ntwo\n");
        let mut buffer = [0; 4];
        assert_eq!(checked.read(&mut buffer).unwrap(), 4);
        file.as_file().write_all(b"three\n").unwrap();
        let mut rest = String::new();
        checked.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "two\nthree\n");
        for (content, why) in [
            ("one\n", "shorter"),
            ("ONE\nTWO\nTHREE\n", "rewritten"),
            ("another text, and a longer one\n", "rewritten"),
        ] {
            let (file, mut checked) = opened("one\ntwo\n");
            assert_eq!(checked.read(&mut [0; 6]).unwrap(), 6);
            fs::write(file.path(), content).unwrap();
            let error = checked.read(&mut [0; 6]).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn what_the_system_makes_up_is_not_compared() {
        let mut checked = Checked::new(File::open("/proc/uptime").unwrap(), 0).unwrap();
        let mut text = String::new();
        while checked.read(&mut [0; 3]).unwrap() > 0 {
            text.push('x');
            assert!(text.len() < 1000);
        }
    }
}

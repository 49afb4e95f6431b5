//! Folders that are to be made or to be there, and files in their place.

use std::fs;
use std::io;
use std::path::Path;

use crate::Shown;

/// Makes a folder and those above it, unless they are there.
///
/// # Errors
/// The system's error. Where a file has the name of one of them it is
/// [`NotADirectory`](io::ErrorKind::NotADirectory), and names the file.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| match file_in_place_of(path) {
        Some(file) => io::Error::new(io::ErrorKind::NotADirectory, file_not_folder(file)),
        None => error,
    })
}

/// The reason why a path is no folder: nothing is there, or a file.
///
/// ```
/// use ardea_filesystem::no_folder;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("state");
/// assert_eq!(no_folder(&path), format!("there is no folder {}", path.display()));
/// std::fs::write(&path, "")?;
/// assert_eq!(no_folder(&path), format!("{} is a file, not a folder", path.display()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn no_folder(path: &Path) -> String {
    match file_in_place_of(path) {
        Some(file) => file_not_folder(file),
        None => format!("there is no folder {}", path.shown()),
    }
}

fn file_not_folder(file: &Path) -> String {
    format!("{} is a file, not a folder", file.shown())
}

/// Returns the path, or what is above it, that is there and is no folder.
fn file_in_place_of(path: &Path) -> Option<&Path> {
    path.ancestors()
        .find(|above| above.exists())
        .filter(|there| !there.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_the_place_of_a_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("a/b")] {
            let error = make_folder(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
            let told = format!("{} is a file, not a folder", file.display());
            assert_eq!(error.to_string(), told);
        }
        make_folder(&folder.path().join("a/b")).unwrap();
        make_folder(&folder.path().join("a")).unwrap();
    }
}

//! Creation of folders, and errors for files in their place.

use std::fs;
use std::io;
use std::path::Path;

use crate::Shown;

/// Creates a folder and its parents, unless they exist.
///
/// # Errors
/// The system's error. If a file has the name of one of the folders, it is
/// [`NotADirectory`](io::ErrorKind::NotADirectory) and names the file.
pub fn create_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| match file_in_place_of(path) {
        Some(file) => io::Error::new(io::ErrorKind::NotADirectory, file_not_folder(file)),
        None => error,
    })
}

/// Returns the reason why a path is not a folder: it does not exist, or a file is in its place.
///
/// ```
/// use ardea_filesystem::missing_folder;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("state");
/// assert_eq!(missing_folder(&path), format!("there is no folder {}", path.display()));
/// std::fs::write(&path, "")?;
/// assert_eq!(missing_folder(&path), format!("{} is a file, not a folder", path.display()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn missing_folder(path: &Path) -> String {
    match file_in_place_of(path) {
        Some(file) => file_not_folder(file),
        None => format!("there is no folder {}", path.shown()),
    }
}

fn file_not_folder(file: &Path) -> String {
    format!("{} is a file, not a folder", file.shown())
}

/// Returns the nearest existing path among `path` and its parents; `None` if that is a folder.
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
            let error = create_folder(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
            let told = format!("{} is a file, not a folder", file.display());
            assert_eq!(error.to_string(), told);
        }
        create_folder(&folder.path().join("a/b")).unwrap();
        create_folder(&folder.path().join("a")).unwrap();
    }
}

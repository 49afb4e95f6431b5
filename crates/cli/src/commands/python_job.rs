//! Jobs that are scripts of Python, which an interpreter submits.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ardea::console::Failure;
use ardea_core::{Error, ErrorCode};

use crate::args::PythonArgs;

/// Returns true if a job is a script of Python, by its name.
pub fn is_one(what: &Path) -> bool {
    what.extension().is_some_and(|extension| extension == "py")
}

/// Checks that the options for scripts are given for a script.
///
/// # Errors
/// A usage error for other jobs.
pub fn check(what: &Path, args: &PythonArgs) -> Result<(), Failure> {
    let given = [
        ("--python", args.python.is_some()),
        ("--requirements", args.requirements.is_some()),
        ("--with-environment", args.with_environment),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if !is_one(what) => Err(Failure::usage(
            format!(
                "{option} is for jobs in Python, and {} is none",
                what.display()
            ),
            "the script of a job in Python ends in .py",
        )),
        _ => Ok(()),
    }
}

/// Replaces this process by the interpreter of a script, with a command for it; returns only on
/// failure.
pub fn become_interpreter(
    script: &Path,
    args: &PythonArgs,
    command: &str,
    options: &[String],
    rest: &[String],
) -> Failure {
    if !script.is_file() {
        let what = format!("there is no file {}", script.display());
        return Error::new(ErrorCode::ReadFailed, what)
            .hint("name the script of the job")
            .into();
    }
    let environment = std::env::var_os("VIRTUAL_ENV");
    let interpreter = interpreter(args.python.clone(), environment.map(PathBuf::from));
    let requirements = args.requirements.iter();
    let error = Command::new(&interpreter)
        .args(["-m", "ardea", command])
        .args(requirements.map(|file| format!("--requirements={}", file.display())))
        .args(args.with_environment.then_some("--with-environment"))
        .args(options)
        .arg(script)
        .arg("--")
        .args(rest)
        .exec();
    let shown = interpreter.display();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            "name an interpreter with the package ardea: --python .venv/bin/python"
        }
        _ => "check the permissions of the interpreter",
    };
    Error::new(
        ErrorCode::StartFailed,
        format!("cannot run the interpreter {shown}"),
    )
    .because(error)
    .hint(hint)
    .into()
}

/// Returns the given interpreter, or that of the active virtual environment, or the one in `PATH`.
fn interpreter(given: Option<PathBuf>, environment: Option<PathBuf>) -> PathBuf {
    let own = environment.filter(|folder| !folder.as_os_str().is_empty());
    given
        .or_else(|| own.map(|folder| folder.join("bin").join("python")))
        .unwrap_or_else(|| PathBuf::from("python3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_the_given_one_or_that_of_the_active_environment() {
        let path = |text: &str| Some(PathBuf::from(text));
        let found = |given, environment| interpreter(given, environment).display().to_string();
        assert_eq!(
            found(path("/usr/bin/python3.12"), path("/venv")),
            "/usr/bin/python3.12"
        );
        assert_eq!(found(None, path("/venv")), "/venv/bin/python");
        assert_eq!(found(None, path("")), "python3");
        assert_eq!(found(None, None), "python3");
    }

    #[test]
    fn options_for_scripts_are_refused_for_other_jobs() {
        let args = PythonArgs {
            requirements: Some("requirements.txt".into()),
            ..PythonArgs::default()
        };
        assert!(check(Path::new("job.py"), &args).is_ok());
        assert!(check(Path::new("job.yaml"), &args).is_err());
        assert!(check(Path::new("job.yaml"), &PythonArgs::default()).is_ok());
    }
}

//! `cargo xtask touched`: the packages affected by the changes of a checkout.

use crate::tidy::packages;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Prints arguments of cargo: `-p NAME` for each package whose files differ from `base`, and with
/// `dependents` also for each package that depends on one of them.
pub fn print(root: &Path, base: &str, with_dependents: bool) -> ExitCode {
    match changed_files(root, base).and_then(|files| select(root, &files, with_dependents)) {
        Ok(names) => {
            let args: Vec<String> = names.iter().map(|name| format!("-p {name}")).collect();
            println!("{}", args.join(" "));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("touched: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the paths that differ from the commit, including new files.
fn changed_files(root: &Path, base: &str) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for args in [
        &["diff", "--name-only", "--merge-base", base][..],
        &["ls-files", "--others", "--exclude-standard"],
    ] {
        let output = Command::new("git").current_dir(root).args(args).output();
        let output = output.map_err(|error| format!("git does not start: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        files.extend(text.lines().map(str::to_owned));
    }
    Ok(files)
}

fn select(
    root: &Path,
    files: &[String],
    with_dependents: bool,
) -> Result<BTreeSet<String>, String> {
    let packages = packages(root)?;
    let is_workspace = |file: &String| file == "Cargo.toml" || file == "Cargo.lock";
    let mut selected: BTreeSet<String> = packages
        .iter()
        .filter(|package| {
            files.iter().any(|file| file.starts_with(&package.folder))
                || files.iter().any(is_workspace)
        })
        .map(|package| package.name.clone())
        .collect();
    if !with_dependents {
        return Ok(selected);
    }
    loop {
        let before = selected.len();
        let depends =
            |dependencies: &[String]| dependencies.iter().any(|one| selected.contains(one));
        let more: Vec<String> = packages
            .iter()
            .filter(|package| depends(&package.dependencies))
            .map(|package| package.name.clone())
            .collect();
        selected.extend(more);
        if selected.len() == before {
            return Ok(selected);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(file: &str, with_dependents: bool) -> BTreeSet<String> {
        select(
            &crate::repository_root(),
            &[file.to_owned()],
            with_dependents,
        )
        .expect("manifests")
    }

    #[test]
    fn a_change_selects_its_package_and_those_that_depend_on_it() {
        let own = selected("crates/metrics/src/lib.rs", false);
        assert_eq!(own.iter().collect::<Vec<_>>(), ["ardea-metrics"]);
        let all = selected("crates/metrics/src/lib.rs", true);
        assert!(all.contains("ardea-server") && all.contains("ardea-cli"));
        assert!(!all.contains("ardea-core"));
    }

    #[test]
    fn a_change_outside_of_packages_selects_none() {
        assert!(selected("docs/tour.md", true).is_empty());
    }
}

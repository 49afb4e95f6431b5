//! Other systems that do the work of a bench, for comparison.

use std::path::Path;
use std::process::{Command, Stdio};

use ardea_core::{Error, ErrorCode, Result};
use serde_json::Value;

/// Runs `program`, and returns the JSON object in its last line. The object has the names of a
/// [`Report`](crate::Report), and at least the number `needed`.
///
/// # Errors
/// [`ErrorCode::StartFailed`] if the program cannot be run, fails, or prints something else.
pub(crate) fn figures(program: &Path, options: &[&str], needed: &str) -> Result<Value> {
    let failed = |why: String| {
        let what = format!("{} gives no figures: {why}", program.display());
        Error::new(ErrorCode::StartFailed, what).hint("run it alone to see its messages")
    };
    let output = Command::new(program)
        .args(options)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    match serde_json::from_str::<Value>(last) {
        Ok(figures) if output.status.success() && figures[needed].is_number() => Ok(figures),
        _ => Err(failed(format!("{}, {last:?}", output.status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_peer_has_its_figures() {
        let run = |script: &str| figures(Path::new("/bin/sh"), &["-c", script], "p50_ms");
        let told = run(r#"echo start; echo '{"p50_ms":5}'"#).unwrap();
        assert_eq!(told["p50_ms"], 5);
        for wrong in [
            "echo nothing",
            "echo '{}'",
            r#"echo '{"p50_ms":5}'; exit 1"#,
        ] {
            assert!(run(wrong).is_err(), "{wrong}");
        }
    }
}

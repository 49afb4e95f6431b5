//! Output surfaces of tables: a terminal with its size and capabilities, or a pipe.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// The visible part of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// The capabilities of a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Style {
    /// True if the terminal supports bold and dim text.
    pub(super) is_styled: bool,
    /// True if the terminal supports Unicode.
    pub(super) is_unicode: bool,
}

/// An output for tables.
pub(super) trait Surface: Send {
    /// Returns the present size of the terminal; `None` for a pipe or a file.
    fn size(&self) -> Option<Size>;

    /// Returns the capabilities of the output.
    fn style(&self) -> Style;

    /// Writes and flushes `text`.
    fn write(&mut self, text: &str) -> io::Result<()>;
}

/// Standard output or standard error.
pub(super) enum Standard {
    Output(io::Stdout),
    Error(io::Stderr),
}

impl Surface for Standard {
    fn size(&self) -> Option<Size> {
        match self {
            Standard::Output(stream) => size_of(stream),
            Standard::Error(stream) => size_of(stream),
        }
    }

    fn style(&self) -> Style {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        Style {
            is_styled: !set("NO_COLOR"),
            is_unicode: is_unicode(|name| env::var(name).ok()),
        }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Standard::Output(stream) => write_all(&mut stream.lock(), text),
            Standard::Error(stream) => write_all(&mut stream.lock(), text),
        }
    }
}

fn write_all(stream: &mut impl Write, text: &str) -> io::Result<()> {
    stream.write_all(text.as_bytes())?;
    stream.flush()
}

/// Returns the size of a terminal with cursor control; 80 × 24 if the terminal does not report its
/// size.
fn size_of(stream: &(impl IsTerminal + AsFd)) -> Option<Size> {
    if !stream.is_terminal() || env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return None;
    }
    let known = rustix::termios::tcgetwinsize(stream)
        .ok()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0);
    Some(known.map_or(
        Size {
            columns: 80,
            rows: 24,
        },
        |size| Size {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
        },
    ))
}

/// Returns true if the locale uses UTF-8. As in setlocale(3), the first set variable of `LC_ALL`,
/// `LC_CTYPE` and `LANG` decides.
fn is_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strongest_locale_variable_that_is_set_decides() {
        let of = |pairs: &[(&str, &str)]| {
            is_unicode(|name| {
                pairs
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| value.to_string())
            })
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]));
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), ("LANG", "C")]));
        assert!(!of(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!of(&[]));
    }
}

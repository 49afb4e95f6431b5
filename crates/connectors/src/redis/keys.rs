//! Keys of encoded commands. The key determines the cluster node that executes a command.

/// Returns the first key of a command; `None` for a command without keys.
pub(crate) fn first_key(command: &[u8]) -> Option<&[u8]> {
    let mut arguments = Arguments { rest: command };
    arguments.skip_head()?;
    let name = arguments.next()?;
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    let before = if ["EVAL", "EVALSHA", "FCALL"].into_iter().any(is) {
        // Skips the script and reads the number of keys.
        let _script = arguments.next()?;
        return match arguments.next()? {
            b"0" => None,
            _ => arguments.next(),
        };
    } else if [
        "BITOP", "XGROUP", "OBJECT", "MEMORY", "XINFO", "LMPOP", "ZMPOP",
    ]
    .into_iter()
    .any(is)
    {
        1
    } else if ["BLMPOP", "BZMPOP"].into_iter().any(is) {
        2
    } else if ["XREAD", "XREADGROUP"].into_iter().any(is) {
        arguments.find(|argument| argument.eq_ignore_ascii_case(b"STREAMS"))?;
        0
    } else if [
        "PING", "ECHO", "PUBLISH", "FLUSHALL", "FLUSHDB", "SCRIPT", "CONFIG", "WAIT", "INFO",
        "TIME", "DBSIZE",
    ]
    .into_iter()
    .any(is)
    {
        return None;
    } else {
        0
    };
    arguments.nth(before)
}

/// The arguments of an encoded command.
struct Arguments<'a> {
    rest: &'a [u8],
}

impl Arguments<'_> {
    /// Reads a protocol line with a count.
    fn skip_head(&mut self) -> Option<usize> {
        let end = self.rest.iter().position(|byte| *byte == b'\r')?;
        let digits = std::str::from_utf8(self.rest.get(1..end)?).ok()?;
        self.rest = self.rest.get(end + 2..)?;
        digits.parse().ok()
    }
}

impl<'a> Iterator for Arguments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = self.skip_head()?;
        let argument = self.rest.get(..length)?;
        self.rest = self.rest.get(length + 2..)?;
        Some(argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::argument::Argument;
    use crate::redis::commands::Commands;

    #[test]
    fn the_key_of_each_kind_of_command_is_found() {
        for (words, key) in [
            (&["SET", "a", "1"][..], Some("a")),
            (&["del", "x\r\ny", "b"], Some("x\r\ny")),
            (&["EVAL", "return 1", "2", "k", "l", "m"], Some("k")),
            (&["FCALL", "f", "0", "m"], None),
            (&["BITOP", "AND", "to", "from"], Some("to")),
            (&["XGROUP", "CREATE", "s", "g", "$"], Some("s")),
            (
                &["XREADGROUP", "GROUP", "g", "c", "streams", "s", ">"],
                Some("s"),
            ),
            (&["PUBLISH", "channel", "text"], None),
            (&["PING"], None),
            (&["GET"], None),
        ] {
            let mut commands = Commands::default();
            let arguments: Vec<&dyn Argument> = words[1..].iter().map(|word| word as _).collect();
            commands.command(words[0], &arguments);
            let found = first_key(commands.bytes());
            assert_eq!(found, key.map(str::as_bytes), "{words:?}");
        }
        assert_eq!(first_key(b"*2\r\n$3\r\nGET\r\n$9\r\nabc"), None, "cut off");
    }
}

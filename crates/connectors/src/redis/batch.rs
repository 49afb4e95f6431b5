//! Batches of pipelined commands and their responses.

use std::ops::Range;

use redis::{Connection, ErrorKind, RedisError};

use crate::redis::answers::{expect, is_passing, is_redirection, refusal};
use crate::redis::commands::Commands;
use crate::redis::nodes::{NodeName, Nodes, no_nodes, redirected};
use crate::sink_worker::Refused;

/// Maximum number of rounds in which redirected commands are sent again.
const ROUNDS: usize = 16;

/// A batch of commands and the state of their responses.
#[derive(Default)]
pub(crate) struct Batch {
    pub commands: Commands,
    /// For each command, true if it has a final response.
    is_answered: Vec<bool>,
    pub refused: Vec<Refused>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.commands.clear();
        self.forget_answers();
    }

    /// Marks all commands as unanswered, so that they are sent again.
    pub fn forget_answers(&mut self) {
        self.is_answered.clear();
        self.refused.clear();
    }

    /// Sends the unanswered commands to a server and reads the responses. After a connection error
    /// the outcome of unanswered commands is unknown. If the server temporarily refuses a command,
    /// this command and all later ones are sent again, in order.
    ///
    /// # Errors
    /// Errors of the connection, and temporary refusals. A redirection if the server is a node of a
    /// cluster; commands of other nodes then remain unanswered.
    pub fn send(&mut self, connection: &mut Connection) -> Result<(), RedisError> {
        let count = self.commands.records().len();
        self.is_answered.resize(count, false);
        let is_answered = self.is_answered.iter();
        let first = is_answered.take_while(|is_answered| **is_answered).count();
        connection.send_packed_command(self.commands.bytes_from(first))?;
        let (mut passing, mut redirection) = (None, None);
        for number in first..count {
            match refusal(connection.recv_response())? {
                _ if passing.is_some() => {}
                Some(error) if is_passing(&error) => passing = Some(error),
                Some(error) if is_redirection(&error) => redirection = Some(error),
                answer => self.note(number, answer),
            }
        }
        redirection.or(passing).map_or(Ok(()), Err)
    }

    /// Sends the unanswered commands to the nodes of a cluster. Commands of one key keep their
    /// order, also when redirected: after redirecting a command, a node redirects all later
    /// commands with the same key.
    pub fn send_to_nodes(&mut self, nodes: &mut Nodes) -> Result<(), RedisError> {
        self.is_answered
            .resize(self.commands.records().len(), false);
        for _ in 0..ROUNDS {
            let shares = self.shares(nodes)?;
            if shares.is_empty() {
                return Ok(());
            }
            for Share { name, bytes, .. } in &shares {
                nodes.connection(name)?.send_packed_command(bytes)?;
            }
            let mut elsewhere = Redirections::default();
            for share in &shares {
                self.read_responses(nodes.connection(&share.name)?, share, &mut elsewhere)?;
            }
            self.follow_all(nodes, &elsewhere.asked)?;
            if let Some(error) = elsewhere.passing {
                return Err(error);
            }
            if elsewhere.has_moved {
                nodes.refresh()?;
            }
        }
        Err(RedisError::from((
            ErrorKind::Io,
            "the nodes of the cluster redirect commands in a circle",
        )))
    }

    /// Divides the unanswered commands by node. Nodes without commands are left out.
    fn shares(&self, nodes: &Nodes) -> Result<Vec<Share>, RedisError> {
        let share = |name: &NodeName| Share {
            name: name.clone(),
            numbers: Vec::new(),
            bytes: Vec::new(),
        };
        let mut shares: Vec<Share> = nodes.names().iter().map(share).collect();
        for (number, command) in self.commands.each().enumerate() {
            if !self.is_answered[number] {
                let node = nodes.number_for(command)?;
                let share = shares.get_mut(node).ok_or_else(no_nodes)?;
                share.numbers.push(number);
                share.bytes.extend_from_slice(command);
            }
        }
        shares.retain(|share| !share.numbers.is_empty());
        Ok(shares)
    }

    fn read_responses(
        &mut self,
        connection: &mut Connection,
        share: &Share,
        elsewhere: &mut Redirections,
    ) -> Result<(), RedisError> {
        let mut is_held = false;
        for &number in &share.numbers {
            match refusal(connection.recv_response())? {
                _ if is_held => {}
                Some(error) if error.code() == Some("MOVED") => elsewhere.has_moved = true,
                Some(error) if error.code() == Some("ASK") => {
                    let name = redirected(&error, &share.name);
                    elsewhere.asked.extend(name.map(|name| (number, name)));
                }
                Some(error) if is_passing(&error) => {
                    is_held = true;
                    elsewhere.passing = Some(error);
                }
                answer => self.note(number, answer),
            }
        }
        Ok(())
    }

    /// Sends the commands in `asked`, one by one, to the nodes to which their slots are migrating.
    fn follow_all(
        &mut self,
        nodes: &mut Nodes,
        asked: &[(usize, NodeName)],
    ) -> Result<(), RedisError> {
        if asked.is_empty() {
            return Ok(());
        }
        let mut start = 0;
        let ranges = self.commands.each().map(|command| {
            let range = start..start + command.len();
            start = range.end;
            range
        });
        let ranges: Vec<Range<usize>> = ranges.collect();
        for (number, name) in asked {
            self.follow(nodes.connection(name)?, *number, ranges[*number].clone())?;
        }
        Ok(())
    }

    /// Sends the command at the byte range `range` to the node to which the command's slot is
    /// migrating.
    fn follow(
        &mut self,
        connection: &mut Connection,
        number: usize,
        range: Range<usize>,
    ) -> Result<(), RedisError> {
        let mut frame = Commands::default();
        frame.command("ASKING", &[]);
        connection.send_packed_command(frame.bytes())?;
        connection.send_packed_command(&self.commands.bytes()[range])?;
        expect(connection.recv_response())?;
        match refusal(connection.recv_response())? {
            Some(error) if is_passing(&error) => Err(error),
            Some(error) if is_redirection(&error) => Ok(()),
            answer => {
                self.note(number, answer);
                Ok(())
            }
        }
    }

    fn note(&mut self, number: usize, answer: Option<RedisError>) {
        self.is_answered[number] = true;
        let record = self.commands.records()[number];
        let refused = answer.map(|error| Refused::new(record, error.to_string()));
        self.refused.extend(refused);
    }
}

/// Commands for one node.
struct Share {
    name: NodeName,
    numbers: Vec<usize>,
    bytes: Vec<u8>,
}

/// Commands that nodes did not execute.
#[derive(Default)]
struct Redirections {
    has_moved: bool,
    asked: Vec<(usize, NodeName)>,
    passing: Option<RedisError>,
}

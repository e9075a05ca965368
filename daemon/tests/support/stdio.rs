//! A daemon that serves one connection on its standard streams.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::Folder;

/// The daemon, and its streams.
pub struct OverStdio {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

/// How it ended once its input did.
pub struct Over {
    pub code: Option<i32>,
    pub err: String,
    /// The frames nobody had read.
    pub unread: Vec<Value>,
}

impl Folder {
    /// Starts it.
    pub fn over_stdio(&self) -> OverStdio {
        let mut command = self.command(&["--stdio"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        OverStdio { child, input, output }
    }
}

impl OverStdio {
    /// Sends one message.
    pub fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Its input, for what is no message.
    pub fn take_input(&mut self) -> ChildStdin {
        self.input.take().unwrap()
    }

    /// Asks for a connection; answers what it is told.
    pub fn initialize(&mut self, version: &str) -> Value {
        self.send(json!({ "id": 1, "method": "initialize", "params": {
            "channel": "ahp-root://", "clientId": "c", "protocolVersions": [version] } }));
        self.next().unwrap()["result"].take()
    }

    /// The next frame, or nothing where there are no more.
    pub fn next(&mut self) -> Option<Value> {
        self.output.next().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// Ends its input and waits for it to end.
    pub fn end(mut self) -> Over {
        drop(self.input);
        let unread = self.output.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Over { code: self.child.wait().unwrap().code(), err, unread }
    }
}

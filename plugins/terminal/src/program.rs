//! The program of a request: a shell, a line in a shell, or a program, and its environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ostler_contract::points::TerminalRequest;
use ostler_processes::{ChildKind, Owner, Program};

use crate::Runtime;

/// The fallback shell.
pub fn system_shell() -> String {
    std::env::var("SHELL").ok().filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned())
}

/// Returns the program of a request, and its name.
pub fn program(runtime: &Runtime, request: &TerminalRequest) -> (Program, String) {
    let shell = request.shell.clone().unwrap_or_else(|| runtime.shell.clone());
    let mut env = environment(request);
    let (command, args) = match (&request.command, &request.args) {
        (Some(program), Some(args)) => (program.clone(), args.clone()),
        (Some(line), None) => (shell, vec!["-c".to_owned(), line.clone()]),
        (None, _) => {
            let args = runtime.integration.as_ref().map(|integration| integration.inject(&shell, &mut env));
            (shell, args.unwrap_or_default())
        }
    };
    let title = name_of(&command).to_owned();
    let cwd = request.cwd.as_deref().map_or_else(own_directory, PathBuf::from);
    let owner = Owner { provider: String::new(), session: request.terminal.clone() };
    let supervisor = runtime.marking.clone();
    let kind = ChildKind::Terminal;
    (Program { kind, command, args, env, cwd, owner, supervisor, supervised: false }, title)
}

/// The last part of a program's path.
pub fn name_of(program: &str) -> &str {
    Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or(program)
}

fn own_directory() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

/// Returns the variables in addition to the daemon's. The size is not among them, because programs would prefer it to
/// the current size of the terminal.
fn environment(request: &TerminalRequest) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([
        ("TERM".to_owned(), "xterm-256color".to_owned()),
        ("COLORTERM".to_owned(), "truecolor".to_owned()),
        ("TERM_PROGRAM".to_owned(), "ostler".to_owned()),
    ]);
    // No user may be present to close a pager.
    if request.command.is_some() {
        env.insert("PAGER".to_owned(), "cat".to_owned());
        env.insert("GIT_PAGER".to_owned(), "cat".to_owned());
    }
    env.extend(request.env.clone());
    env
}

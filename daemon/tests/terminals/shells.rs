//! Shells that report their commands, whatever their startup files set or lock and however a line was edited.

use super::support::{Daemon, Folder};
use super::{ONE, Watcher, folder, shell, start_with, text_of};
use serde_json::{Value, json};

/// What becomes of the commands of a shell.
#[derive(Clone, Copy)]
enum Reports {
    /// They are reported with their lines.
    Lines,
    /// They are reported without.
    Commands,
    /// They are not, for a reason that the log has.
    Nothing(&'static str),
}

use Reports::{Commands, Lines, Nothing};

/// A shell whose startup file ends with this, and its title after a command if the startup file sets one.
struct Startup {
    shell: &'static str,
    ends: &'static str,
    reports: Reports,
    title: Option<&'static str>,
}

const fn startup(shell: &'static str, ends: &'static str, reports: Reports) -> Startup {
    Startup { shell, ends, reports, title: None }
}

const fn titled(shell: &'static str, ends: &'static str, reports: Reports, title: &'static str) -> Startup {
    Startup { shell, ends, reports, title: Some(title) }
}

/// Its output is not in its line.
const ECHO: &str = "echo hi-'2'";

const STARTUPS: &[Startup] = &[
    startup("bash", "", Lines),
    startup("bash", "set -u", Lines),
    startup("bash", "set -u; unset LINENO HOSTNAME HISTTIMEFORMAT PS0 PROMPT_COMMAND", Lines),
    startup("bash", "shopt -u promptvars", Commands),
    startup("bash", "set -u; shopt -u promptvars", Commands),
    startup("bash", "readonly PROMPT_COMMAND", Lines),
    startup("bash", "PROMPT_COMMAND=true; readonly PROMPT_COMMAND", Lines),
    startup("bash", "readonly PS1", Lines),
    startup("bash", "readonly line path number code name entry IFS OPTIND REPLY", Lines),
    startup("bash", "IFS=_", Lines),
    startup("bash", "readonly PS0", Nothing("PS0 is read-only")),
    startup("bash", "readonly PS0=; set -u", Nothing("PS0 is read-only")),
    startup("bash", "readonly PROMPT_COMMAND PS1", Nothing("PS1 is read-only, and PROMPT_COMMAND is")),
    startup(
        "bash",
        "readonly PROMPT_COMMAND; shopt -u promptvars",
        Nothing("promptvars is off, and PROMPT_COMMAND is"),
    ),
    // What Ubuntu and Fedora do: a title in the prompt, in PROMPT_COMMAND, and in an array of commands.
    titled("bash", r#"PS1='\[\e]0;here\a\]ready> '"#, Lines, "here"),
    titled("bash", r#"PROMPT_COMMAND='printf "\033]0;%s\007" "at $?"'"#, Lines, "at 0"),
    titled("bash", r#"PROMPT_COMMAND=('printf "\033]0;%s\007" "at $?"' true)"#, Lines, "at 0"),
    titled("bash", r#"PROMPT_COMMAND=(); PROMPT_COMMAND[3]='printf "\033]0;%s\007" 3'"#, Lines, "3"),
    titled("bash", r#"trap 'printf "\033]0;%s\007" "$BASH_COMMAND"' DEBUG"#, Lines, ECHO),
    startup("bash", "set -T; trap : DEBUG", Nothing("functrace is on and a DEBUG trap is set")),
    startup("bash", r#"PROMPT_COMMAND='PS1="ready> "'"#, Lines),
    startup(
        "bash",
        r#"PROMPT_COMMAND='PS1="ready> "'; readonly PROMPT_COMMAND"#,
        Nothing("is set anew before each prompt"),
    ),
    startup("bash", "export PROMPT_COMMAND=true PS0 PS1; set -a", Lines),
    startup("bash", "HISTTIMEFORMAT='%F %T '", Lines),
    startup("bash", "readonly HISTTIMEFORMAT='%F %T '", Commands),
    startup("bash", "HISTSIZE=0", Commands),
    startup("bash", "set -o posix; set -f; shopt -s nocasematch extglob; IFS=0123", Lines),
    // Debian's startup file.
    startup("bash", "[[ ! -r /etc/skel/.bashrc ]] || . /etc/skel/.bashrc; PS1='ready> '", Lines),
    startup("zsh", "", Lines),
    startup("zsh", "setopt nounset", Lines),
    startup("zsh", "setopt no_prompt_percent prompt_subst", Lines),
    startup("zsh", "typeset -r PS1", Lines),
    startup("zsh", "precmd_functions=(true)", Lines),
    startup(
        "zsh",
        "typeset -ar precmd_functions",
        Nothing("precmd_functions or preexec_functions is read-only"),
    ),
    startup(
        "zsh",
        "typeset -ar preexec_functions",
        Nothing("precmd_functions or preexec_functions is read-only"),
    ),
    startup("zsh", "TRAPDEBUG() { : }", Nothing("a DEBUG trap is set")),
    startup("zsh", "setopt ksh_arrays sh_word_split warn_create_global", Lines),
    startup("zsh", "HISTSIZE=0", Lines),
    titled("zsh", r#"precmd() { print -n "\e]0;at $?\a" }"#, Lines, "at 0"),
    startup("fish", "", Lines),
    titled("fish", "function fish_title; echo here; end", Lines, "here"),
];

/// Where a shell reads its startup file.
fn file_of(shell: &str) -> &'static str {
    match shell {
        "bash" => ".bashrc",
        "zsh" => ".zshrc",
        _ => ".config/fish/config.fish",
    }
}

/// Opens a terminal with a shell whose startup file ends with this.
async fn open(folder: &Folder, daemon: &Daemon, shell: &str, ends: &str) -> Watcher {
    let file = file_of(shell);
    let base = folder.path().join(file).with_extension("base");
    if !base.exists() {
        std::fs::copy(folder.path().join(file), &base).unwrap();
    }
    // Shells would read what those before them wrote.
    let forgets = if shell == "fish" { "" } else { "unset HISTFILE\n" };
    folder.write(file, &format!("{}{forgets}{ends}\n", std::fs::read_to_string(&base).unwrap()));
    Watcher::open(daemon, json!({})).await
}

async fn dispose(mut terminal: Watcher) {
    terminal.client.request("disposeTerminal", json!({ "channel": ONE })).await.unwrap();
}

#[tokio::test]
async fn startup_files_can_set_and_lock_what_they_like() {
    for name in ["bash", "zsh", "fish"] {
        let Some(path) = shell(name) else { continue };
        let folder = folder(json!({ "shellIntegration": true }));
        let daemon = start_with(&folder, &path);
        for row in STARTUPS.iter().filter(|row| row.shell == name) {
            let what = format!("{name}: {}", row.ends);
            let mut terminal = open(&folder, &daemon, name, row.ends).await;
            terminal.said("ready> ").await;
            let state = match row.reports {
                Nothing(why) => {
                    terminal.run("sh -c 'exit 3'").await;
                    terminal.prints(ECHO, "hi-2").await;
                    folder.wait_for_log(why);
                    let state = terminal.state().await;
                    assert_eq!(state["supportsCommandDetection"], false, "{what}");
                    state
                }
                Lines | Commands => {
                    terminal.type_in("sh -c 'exit 3'\r").await;
                    assert_eq!(terminal.until("terminal/commandFinished").await["exitCode"], 3, "{what}");
                    terminal.said("ready> ").await;
                    terminal.type_in(&format!("{ECHO}\r")).await;
                    let line = terminal.until("terminal/commandExecuted").await["commandLine"].clone();
                    let expected = if matches!(row.reports, Lines) { ECHO } else { "" };
                    assert_eq!(line, expected, "{what}");
                    assert_eq!(terminal.until("terminal/commandFinished").await["exitCode"], 0, "{what}");
                    terminal.said("ready> ").await;
                    let state = terminal.state().await;
                    assert_eq!(state["supportsCommandDetection"], true, "{what}");
                    state
                }
            };
            if let Some(title) = row.title {
                assert_eq!(state["title"], title, "{what}");
            }
            let text = text_of(&state);
            for wrong in
                ["unbound", "read-only", "readonly", "not found", "bash: ", "zsh: ", "fish: ", "]633", "]133"]
            {
                assert!(!text.contains(wrong), "{what}: {text:?}");
            }
            // A program that only sees titles would see the scripts in them.
            let last = text.rfind("hi-2").unwrap_or_else(|| panic!("{what}: {text:?}"));
            assert!(!text[last..].contains("__ostler"), "{what}: {text:?}");
            dispose(terminal).await;
        }
    }
}

/// Inputs, each with the line that the shell runs; an empty one where the shell does not know it.
type Inputs = &'static [(&'static [&'static str], &'static str)];

const EDITED: Inputs = &[
    (&["echo hi\r"], "echo hi"),
    (&["garbage", "\u{15}", "echo hi-2\r"], "echo hi-2"),
    (&["echo one two\u{1}\u{b}echo three\r"], "echo three"),
    (&["echo ab\u{1b}[D\u{8}c\r"], "echo cb"),
    (&["echo four", "\u{17}\u{17}", "echo five\r"], "echo five"),
    (&["\u{12}three\r"], "echo three"),
    (&["\u{1b}[A\u{1b}[A\r"], "echo five"),
    (&[" echo space\r"], " echo space"),
    (&["echo 'a\r", "b;\\\\c'\r"], "echo 'a\nb;\\\\c'"),
    (&["for i in 1 2\r", "do echo $i\r", "done\r"], "for i in 1 2; do echo $i; done"),
];

const ROWS: &[(&str, &str, Inputs)] = &[
    ("bash", "", EDITED),
    ("bash", "set -o vi; bind 'set keymap vi-insert'", &[(&["echo hix\u{1b}xi\r"], "echo hi")]),
    (
        "bash",
        "HISTCONTROL=ignoreboth",
        &[
            (&["echo hi\r"], "echo hi"),
            (&["garbage", "\u{15}", "echo hi\r"], ""),
            (&[" echo space\r"], ""),
            (&["\u{1b}[A\r"], ""),
            (&["echo other\r"], "echo other"),
            (&[" for i in 1 2\r", "do echo $i\r", "done\r"], ""),
            (&["for i in 1 2\r", "do echo $i\r", "done\r"], "for i in 1 2; do echo $i; done"),
        ],
    ),
    ("bash", "set +o history", &[(&["echo hi\r"], ""), (&["garbage", "\u{15}", "echo hi\r"], "")]),
    ("bash", "HISTIGNORE='echo*'", &[(&["echo hi\r"], ""), (&["true\r"], "true"), (&["echo hi\r"], "")]),
    (
        "bash",
        "shopt -u cmdhist",
        &[(&["true\r"], ""), (&["echo 'a\r", "b'\r"], ""), (&["echo hi\r"], "echo hi")],
    ),
    // Lines of another shell come between.
    (
        "bash",
        "HISTCONTROL=ignoreboth; PROMPT_COMMAND='history -s another'",
        &[(&["echo hi\r"], "echo hi"), (&[" echo space\r"], ""), (&["echo hi\r"], "echo hi")],
    ),
    ("zsh", "setopt zle hist_ignore_space hist_ignore_dups", EDITED_BY_ZSH),
    (
        "zsh",
        "setopt zle; HISTSIZE=0",
        &[(&["garbage", "\u{15}", "echo hi\r"], "echo hi"), (&["echo hi\r"], "echo hi")],
    ),
    ("fish", "", EDITED_BY_FISH),
];

const EDITED_BY_ZSH: Inputs = &[
    (&["echo hi\r"], "echo hi"),
    (&["garbage", "\u{15}", "echo hi\r"], "echo hi"),
    (&["echo ab\u{1b}[D\u{8}c\r"], "echo cb"),
    (&[" echo space\r"], " echo space"),
    (&["\u{12}hi\r"], "echo hi"),
    (&["echo 'a\r", "b;c'\r"], "echo 'a\nb;c'"),
];

const EDITED_BY_FISH: Inputs = &[
    (&["echo hi\r"], "echo hi"),
    (&["garbage", "\u{15}", "echo hi-2\r"], "echo hi-2"),
    (&["echo ab\u{1b}[D\u{8}c\r"], "echo cb"),
    (&[" echo space\r"], " echo space"),
    (&["echo 'a\r", "b;c'\r"], "echo 'a\nb;c'"),
];

#[tokio::test]
async fn a_recorded_line_is_the_one_that_ran_or_none() {
    for name in ["bash", "zsh", "fish"] {
        let Some(path) = shell(name) else { continue };
        let folder = folder(json!({ "shellIntegration": true }));
        let daemon = start_with(&folder, &path);
        for (_, ends, inputs) in ROWS.iter().filter(|(shell, ..)| *shell == name) {
            let mut terminal = open(&folder, &daemon, name, ends).await;
            terminal.said("ready> ").await;
            for (keys, expected) in *inputs {
                for keys in *keys {
                    terminal.type_in(keys).await;
                }
                let line = terminal.until("terminal/commandExecuted").await["commandLine"].clone();
                assert_eq!(line, *expected, "{name}, {ends}: {keys:?}");
                terminal.until("terminal/commandFinished").await;
                terminal.said("ready> ").await;
            }
            dispose(terminal).await;
        }
    }
}

/// A shell that a user starts in the terminal inherits what is exported, but not the functions.
#[tokio::test]
async fn a_shell_in_a_shell_prints_no_errors() {
    let folder = folder(json!({ "shellIntegration": true }));
    let daemon = start_with(&folder, "/bin/bash");
    let ends = "export PROMPT_COMMAND=true PS0 PS1";
    let mut terminal = open(&folder, &daemon, "bash", ends).await;
    terminal.said("ready> ").await;
    terminal.type_in("bash --norc\r").await;
    terminal.said("ready> ").await;
    terminal.prints("echo in-$((1 + 1))", "in-2\r\n").await;
    terminal.prints("exit", "").await;
    terminal.prints("echo out-$((1 + 1))", "out-2\r\n").await;
    let state = terminal.state().await;
    assert!(!text_of(&state).contains("bash: "), "{:?}", text_of(&state));
    let lines: Vec<&Value> =
        state["content"].as_array().unwrap().iter().map(|part| &part["commandLine"]).collect();
    assert!(
        lines.contains(&&json!("bash --norc")) && lines.contains(&&json!("echo out-$((1 + 1))")),
        "{lines:?}"
    );
}

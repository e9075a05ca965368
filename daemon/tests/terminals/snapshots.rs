//! What a late subscriber of a terminal shows, compared with one that has seen everything.

use super::support::{Daemon, Folder};
use super::{ONE, Watcher, folder, start, text_of};
use serde_json::{Value, json};

/// Draws more than is stored on the alternate screen, then waits for a key twice: before the second one it is done.
const PROGRAM: &str = r#"
printf 'before\n\033[?1049h\033[?2004h\033[?1000h\033[?1006h\033[?25l\033[2J\033]11;#102030\007'
i=0
while [ $i -lt 9000 ]; do
    printf '\033[%d;1H\033[38;5;1%02dmrow %05d é日 xxxxxxxxxxxxxxxxxxxxxxxxxxxx' $((i % 24 + 1)) $((i % 50)) $i
    i=$((i + 1))
done
printf '\033[1;44m\033[5;10r\033[24;1Hdrawn-%d' 2
stty -icanon -echo
dd bs=1 count=1 2>/dev/null
printf '\033[r\033[?25h\033[?1000l\033[?2004l\033[?1049l\033[mover-%d\n' 2
"#;

async fn drawing(daemon: &Daemon, folder: &Folder) -> Watcher {
    folder.write("draw.sh", PROGRAM);
    let mut terminal = Watcher::open(daemon, json!({})).await;
    while !terminal.text.contains("ready> ") {
        terminal.step().await;
    }
    terminal.type_in("sh draw.sh\r").await;
    while !terminal.text.contains("drawn-2") {
        terminal.step().await;
    }
    terminal
}

fn shown(text: &str) -> vt100::Parser {
    let mut parser = vt100::Parser::new(24.try_into().unwrap(), 80.try_into().unwrap(), 0);
    parser.process(text.as_bytes());
    parser
}

/// Asserts that two outputs show the same screen in the same modes.
fn same(all: &str, late: &str) {
    let (all, late) = (shown(all), shown(late));
    let (all, late) = (all.screen(), late.screen());
    for (row, col) in (0..24).flat_map(|row| (0..80).map(move |col| (row, col))) {
        let look = |screen: &vt100::Screen| {
            let cell = screen.cell(row, col).unwrap().clone();
            (cell.contents().trim().to_owned(), cell.bgcolor(), (cell.has_contents()).then(|| cell.fgcolor()))
        };
        let (one, other) = (look(all), look(late));
        // Nothing shows the colour of a space.
        assert!(one == other || (one.0.is_empty() && one.0 == other.0 && one.1 == other.1), "{row}, {col}");
    }
    assert_eq!(all.cursor_state_formatted(), late.cursor_state_formatted());
    assert_eq!(all.input_mode_formatted(), late.input_mode_formatted());
    assert_eq!(all.attributes_formatted(), late.attributes_formatted());
    assert_eq!(all.alternate_screen(), late.alternate_screen());
}

async fn late(daemon: &Daemon, name: &str) -> Watcher {
    Watcher::of(daemon.initialized(name).await, ONE).await
}

#[tokio::test]
async fn a_late_subscriber_shows_what_the_others_show() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut all = drawing(&daemon, &folder).await;
    let mut late = late(&daemon, "late").await;
    assert!(late.text.chars().count() > 200_000 && late.text.len() < all.text.len());
    let modes = [
        "\u{1b}[?1049h",
        "\u{1b}[?2004h",
        "\u{1b}[?1000h",
        "\u{1b}[?1006h",
        "\u{1b}[?25l",
        "\u{1b}]11;#102030\u{7}",
    ];
    for mode in modes {
        let at = late.text.find(mode).unwrap_or_else(|| panic!("{mode:?}: {:?}", &late.text[..2000]));
        assert!(at < 8000, "{mode:?} is at {at}");
    }
    same(&all.text, &late.text);
    // The program shows the screen below again, for both.
    all.type_in("x").await;
    for terminal in [&mut all, &mut late] {
        while !terminal.text.contains("over-2\r\nready> ") {
            terminal.step().await;
        }
    }
    same(&all.text, &late.text);
    let contents = shown(&late.text).screen().contents();
    let lines: Vec<&str> = contents.lines().map(str::trim_end).collect();
    assert_eq!(lines, ["ready> sh draw.sh", "before", "over-2", "ready>"]);
}

#[tokio::test]
async fn what_is_switched_on_outlives_a_clear() {
    let folder = folder(json!({}));
    let daemon = start(&folder);
    let mut terminal = drawing(&daemon, &folder).await;
    terminal.dispatch(json!({ "type": "terminal/cleared" })).await;
    terminal.until("terminal/cleared").await;
    let late = late(&daemon, "late").await;
    let parser = shown(&late.text);
    let screen = parser.screen();
    assert!(screen.alternate_screen() && screen.bracketed_paste() && screen.hide_cursor() && screen.bold());
    assert_eq!(screen.contents().trim(), "");
    // Where nothing is on, nothing is left.
    terminal.type_in("x").await;
    terminal.said("over-2\r\nready> ").await;
    terminal.dispatch(json!({ "type": "terminal/cleared" })).await;
    terminal.until("terminal/cleared").await;
    let content: Vec<Value> = terminal.state().await["content"].as_array().unwrap().clone();
    let text = text_of(&json!({ "content": content }));
    assert!(!text.contains("[?1049h") && !text.contains("[?2004h") && !text.contains("over-2"), "{text:?}");
}

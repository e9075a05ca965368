# Reports the commands of bash to the terminal it runs in. Read in place of ~/.bashrc, which it reads first.

if [[ -r ~/.bashrc ]]; then
    . ~/.bashrc
fi

# PS0 and the history it reads are there since 4.4.
if ((BASH_VERSINFO[0] > 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] >= 4))) && [[ $- == *i* ]]; then
    __ostler_escape() {
        local text=${1//\\/\\\\}
        text=${text//;/\\x3b}
        text=${text//$'\n'/\\x0a}
        text=${text//$'\e'/\\x1b}
        REPLY=${text//$'\a'/\\x07}
    }

    # Before a command: its line, where the history took it, and the mark that it runs.
    __ostler_executes() {
        local REPLY entry
        entry=$(HISTTIMEFORMAT='' builtin history 1 2>/dev/null)
        if [[ $entry =~ ^\ *([0-9]+)[\ *]\ (.*)$ && ${BASH_REMATCH[1]} != "$__ostler_entry" ]]; then
            __ostler_escape "${BASH_REMATCH[2]}"
            builtin printf '\e]633;E;%s\a' "$REPLY"
        fi
        builtin printf '\e]133;C\a'
    }

    # Before the prompt, first: how the command ended.
    __ostler_ended() {
        local code=$?
        builtin printf '\e]133;D;%s\a' "$code"
        return "$code"
    }

    # Before the prompt, last: where the shell works, and marks around a prompt that something may have set again.
    __ostler_prompts() {
        local code=$? path=${PWD//%/%25} entry
        path=${path//$'\e'/%1B}
        path=${path//$'\a'/%07}
        builtin printf '\e]7;file://%s%s\a' "$HOSTNAME" "$path"
        entry=$(HISTTIMEFORMAT='' builtin history 1 2>/dev/null)
        __ostler_entry=
        if [[ $entry =~ ^\ *([0-9]+) ]]; then
            __ostler_entry=${BASH_REMATCH[1]}
        fi
        if [[ $PS1 != *'133;A'* ]]; then
            PS1='\[\e]133;A\a\]'$PS1'\[\e]133;B\a\]'
        fi
        if [[ $PS0 != *__ostler_executes* ]]; then
            PS0='$(__ostler_executes)'$PS0
        fi
        return "$code"
    }

    if [[ ${PROMPT_COMMAND@a} == *a* ]]; then
        PROMPT_COMMAND=(__ostler_ended "${PROMPT_COMMAND[@]}" __ostler_prompts)
    else
        PROMPT_COMMAND=$'__ostler_ended\n'"${PROMPT_COMMAND-}"$'\n__ostler_prompts'
    fi
fi

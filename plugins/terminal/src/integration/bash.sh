# Reports the commands of bash to the terminal it runs in. Read in place of ~/.bashrc, which it reads.
#
# Whatever the startup files set or lock, nothing here may print an error or change what the user's own commands see. The
# functions come before these files, so that no alias of the user is part of them. Variables contain their names, so that a
# shell which only inherits PROMPT_COMMAND or a prompt runs `:`. Local variables cannot have the names of read-only ones, so
# their names begin with `__ostler_`.

if [[ $- == *i* ]]; then
    __ostler_is_locked() {
        [[ $(builtin declare -p "$1" 2>/dev/null) =~ ^declare\ -[A-Za-z]*r ]]
    }

    # Says why commands are not reported.
    __ostler_stays_away() {
        builtin printf '\e]633;P;IntegrationOff=%s\a' "$1"
    }

    # Sets __ostler_text.
    __ostler_escape() {
        __ostler_text=${1//\\/\\\\}
        __ostler_text=${__ostler_text//;/\\x3b}
        __ostler_text=${__ostler_text//$'\n'/\\x0a}
        __ostler_text=${__ostler_text//$'\e'/\\x1b}
        __ostler_text=${__ostler_text//$'\a'/\\x07}
    }

    # The number and the line of the last entry of the history.
    __ostler_last_entry() {
        local __ostler_found
        __ostler_number='' __ostler_command=''
        if [[ -z ${HISTTIMEFORMAT-} ]]; then
            __ostler_found=$(builtin history 1)
        elif __ostler_is_locked HISTTIMEFORMAT; then
            # Its times cannot be left out.
            return
        else
            __ostler_found=$(HISTTIMEFORMAT='' && builtin history 1)
        fi
        if [[ $__ostler_found =~ ^\ *([0-9]+)[\ *]\ (.*)$ ]]; then
            __ostler_number=${BASH_REMATCH[1]} __ostler_command=${BASH_REMATCH[2]}
        fi
    }

    # Before a command: its line, if the history took it, and the mark that it runs. Runs in a subshell.
    __ostler_executes() {
        local __ostler_number __ostler_command __ostler_before __ostler_text='' __ostler_count=0
        builtin set +eufxT
        builtin trap - DEBUG
        if [[ "${PROMPT_COMMAND[*]-} ${PS1-}" != *__ostler_prompt* ]]; then
            __ostler_stays_away 'PROMPT_COMMAND or PS1 is set anew before each prompt'
            return
        fi
        __ostler_last_entry
        if [[ -n ${__ostler_lines-} ]]; then
            __ostler_count=$((__ostler_line - __ostler_lines))
        fi
        if [[ -n $__ostler_number && -o history ]]; then
            # The entry before the current command. This is the last entry if the history did not take the command, or
            # if the command has several lines or is the first one: then the numbers must show that there is a new entry.
            __ostler_before=$(builtin fc -l -1 -1)
            __ostler_before=${__ostler_before%%[!0-9]*}
            if shopt -q cmdhist; then
                if [[ $__ostler_before != "$__ostler_number" ]] \
                    || ((__ostler_count > 1 && __ostler_number == __ostler_entry + 1)) \
                    || [[ ${__ostler_entry-} == 0 ]]; then
                    __ostler_escape "$__ostler_command"
                fi
            elif [[ $__ostler_before != "$__ostler_number" ]] && ((__ostler_count == 1)); then
                __ostler_escape "$__ostler_command"
            fi
        fi
        # A longer mark would not be taken for one.
        if ((${#__ostler_text} > 16000)); then
            __ostler_text=
        fi
        builtin printf '\e]633;E;%s\a\e]133;C\a' "$__ostler_text"
    } 2>/dev/null

    # Before the prompt: how the command ended, that there is a prompt, and where the shell works.
    __ostler_prompt() {
        local __ostler_code=$? __ostler_stops=$-
        local - __ostler_path=${PWD-} __ostler_number __ostler_command
        builtin set +eufxT
        __ostler_path=${__ostler_path//%/%25}
        __ostler_path=${__ostler_path//$'\e'/%1B}
        __ostler_path=${__ostler_path//$'\a'/%07}
        builtin printf '\e]133;D;%s\a\e]133;A\a\e]7;file://%s%s\a' "$__ostler_code" "${HOSTNAME-}" "$__ostler_path"
        __ostler_last_entry
        __ostler_entry=${__ostler_number:-0} __ostler_lines=$1
        __ostler_marks_commands
        # A shell that stops at failures would stop here.
        if [[ $__ostler_stops == *e* ]]; then
            return 0
        fi
        return "$__ostler_code"
    } 2>/dev/null

    # Adds the marks to PS0. Without `promptvars` it cannot run a function. The number of the line is that of the shell only
    # outside of the substitution.
    __ostler_marks_commands() {
        local __ostler_runs='${$:__ostler_line=${LINENO-0},0:0}$("${__ostler_executes-:}")'
        local __ostler_marks='\e]633;E;\a\e]133;C\a' __ostler_own=${PS0-}
        __ostler_own=${__ostler_own//"$__ostler_runs"/}
        __ostler_own=${__ostler_own//"$__ostler_marks"/}
        if shopt -q promptvars; then
            PS0=$__ostler_runs$__ostler_own
        else
            PS0=$__ostler_marks$__ostler_own
        fi
    }

    # A DEBUG trap, which is the argument, sees what PROMPT_COMMAND runs, and often sets the title to it. It does not see
    # what a prompt expands.
    __ostler_install() {
        # Options cannot be local before 4.4.
        if ((BASH_VERSINFO[0] < 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] < 4))); then
            __ostler_stays_away 'bash is older than 4.4'
            return 0
        fi
        local __ostler_options=$-
        local -
        builtin set +eufxT
        if __ostler_is_locked PS0; then
            __ostler_stays_away 'PS0 is read-only'
        elif [[ -n $1 && $__ostler_options == *T* ]]; then
            __ostler_stays_away 'functrace is on and a DEBUG trap is set'
        elif [[ -z $1 ]] && ! __ostler_is_locked PROMPT_COMMAND; then
            PROMPT_COMMAND=$'"${__ostler_prompt-:}" "${LINENO-}"\n'"${PROMPT_COMMAND-}"
            __ostler_marks_commands
        elif __ostler_is_locked PS1; then
            __ostler_stays_away 'PS1 is read-only, and PROMPT_COMMAND is read-only or a DEBUG trap is set'
        elif ! shopt -q promptvars; then
            __ostler_stays_away 'promptvars is off, and PROMPT_COMMAND is read-only or a DEBUG trap is set'
        else
            PS1='\[$("${__ostler_prompt-:}" "")\]'${PS1-}
            __ostler_marks_commands
        fi
    } 2>/dev/null

    __ostler_prompt=__ostler_prompt __ostler_executes=__ostler_executes
fi

if [[ -r ~/.bashrc ]]; then
    . ~/.bashrc
fi

if [[ $- == *i* ]]; then
    __ostler_install "$(builtin trap -p DEBUG)"
fi

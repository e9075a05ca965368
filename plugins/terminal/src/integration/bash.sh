# Reports the commands of bash to the terminal it runs in. Read in place of ~/.bashrc, which it reads.
#
# Whatever the startup files set or lock, nothing here may print an error or change what the user's own commands see. The
# functions come before these files, so that no alias of the user is part of them. Variables contain their names, so that a
# shell which only inherits PROMPT_COMMAND or a prompt runs `:`.

if [[ $- == *i* ]]; then
    __ostler_is_locked() {
        [[ $(builtin declare -p "$1" 2>/dev/null) =~ ^declare\ -[A-Za-z]*r ]]
    }

    # Says why commands are not reported.
    __ostler_stays_away() {
        builtin printf '\e]633;P;IntegrationOff=%s\a' "$1"
    }

    __ostler_escape() {
        local text=${1//\\/\\\\}
        text=${text//;/\\x3b}
        text=${text//$'\n'/\\x0a}
        text=${text//$'\e'/\\x1b}
        REPLY=${text//$'\a'/\\x07}
    }

    # The number and the line of the last entry of the history.
    __ostler_last_entry() {
        local entry
        number='' line=''
        # Its times cannot be left out.
        if [[ -n ${HISTTIMEFORMAT-} ]] && __ostler_is_locked HISTTIMEFORMAT; then
            return
        fi
        entry=$(HISTTIMEFORMAT='' && builtin history 1)
        if [[ $entry =~ ^\ *([0-9]+)[\ *]\ (.*)$ ]]; then
            number=${BASH_REMATCH[1]} line=${BASH_REMATCH[2]}
        fi
    }

    # Before a command: its line, if the history took it, and the mark that it runs. Runs in a subshell.
    __ostler_executes() {
        local number line before REPLY='' lines=0
        builtin set +eufxT
        builtin trap - DEBUG
        if [[ "${PROMPT_COMMAND[*]-} ${PS1-}" != *__ostler_prompt* ]]; then
            __ostler_stays_away 'PROMPT_COMMAND or PS1 is set anew before each prompt'
            return
        fi
        __ostler_last_entry
        if [[ -n ${__ostler_lines-} ]]; then
            lines=$((__ostler_line - __ostler_lines))
        fi
        if [[ -n $number && -o history ]]; then
            # The entry before the current command. This is the last entry if the history did not take the command, or
            # if the command has several lines or is the first one: then the numbers must show that there is a new entry.
            before=$(builtin fc -l -1 -1)
            before=${before%%[!0-9]*}
            if shopt -q cmdhist; then
                if [[ $before != "$number" ]] || ((lines > 1 && number == __ostler_entry + 1)) \
                    || [[ ${__ostler_entry-} == 0 ]]; then
                    __ostler_escape "$line"
                fi
            elif [[ $before != "$number" ]] && ((lines == 1)); then
                __ostler_escape "$line"
            fi
        fi
        # A longer mark would not be taken for one.
        if ((${#REPLY} > 16000)); then
            REPLY=
        fi
        builtin printf '\e]633;E;%s\a\e]133;C\a' "$REPLY"
    } 2>/dev/null

    # Before the prompt: how the command ended, that there is a prompt, and where the shell works.
    __ostler_prompt() {
        local code=$? stops=$-
        local - path=${PWD-} number line
        builtin set +eufxT
        path=${path//%/%25}
        path=${path//$'\e'/%1B}
        path=${path//$'\a'/%07}
        builtin printf '\e]133;D;%s\a\e]133;A\a\e]7;file://%s%s\a' "$code" "${HOSTNAME-}" "$path"
        __ostler_last_entry
        __ostler_entry=${number:-0} __ostler_lines=$1
        __ostler_marks_commands
        # A shell that stops at failures would stop here.
        if [[ $stops == *e* ]]; then
            return 0
        fi
        return "$code"
    } 2>/dev/null

    # Adds the marks to PS0. Without `promptvars` it cannot run a function. The number of the line is that of the shell only
    # outside of the substitution.
    __ostler_marks_commands() {
        local runs='${$:__ostler_line=${LINENO-0},0:0}$(${__ostler_executes-:})' prints='\e]633;E;\a\e]133;C\a' own=${PS0-}
        own=${own//"$runs"/}
        own=${own//"$prints"/}
        if shopt -q promptvars; then
            PS0=$runs$own
        else
            PS0=$prints$own
        fi
    }

    # A DEBUG trap, which is the argument, sees what PROMPT_COMMAND runs, and often sets the title to it. It does not see
    # what a prompt expands.
    __ostler_install() {
        local options=$-
        local -
        builtin set +eufxT
        if ((BASH_VERSINFO[0] < 4 || (BASH_VERSINFO[0] == 4 && BASH_VERSINFO[1] < 4))); then
            __ostler_stays_away 'bash is older than 4.4'
        elif __ostler_is_locked PS0; then
            __ostler_stays_away 'PS0 is read-only'
        elif [[ -n $1 && $options == *T* ]]; then
            __ostler_stays_away 'functrace is on and a DEBUG trap is set'
        elif [[ -z $1 ]] && ! __ostler_is_locked PROMPT_COMMAND; then
            PROMPT_COMMAND=$'${__ostler_prompt-:} "${LINENO-}"\n'"${PROMPT_COMMAND-}"
            __ostler_marks_commands
        elif __ostler_is_locked PS1; then
            __ostler_stays_away 'PS1 is read-only, and PROMPT_COMMAND is read-only or a DEBUG trap is set'
        elif ! shopt -q promptvars; then
            __ostler_stays_away 'promptvars is off, and PROMPT_COMMAND is read-only or a DEBUG trap is set'
        else
            PS1='\[$(${__ostler_prompt-:} "")\]'${PS1-}
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

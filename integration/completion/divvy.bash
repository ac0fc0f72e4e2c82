# bash completion for divvy(1)

# Names of tenants are chosen by others: they are compared and quoted as they are, and never given to `compgen -W`,
# which would run the commands in them.

_divvy_tenants() { # a name can have blanks; the columns behind it are as wide as in the heading, if there is one
    divvy tenants 2>/dev/null | awk '
        NR == 1 { if (!/^TENANT +SESSIONS /) exit; rest = length($0) - index($0, "SESSIONS") + 1; next }
        { name = substr($0, 1, length($0) - rest); sub(/ +$/, "", name) }
        name != "" && !seen[name]++ { print name }'
}

_divvy_sessions() {
    divvy ps -o SESSION 2>/dev/null | awk 'NR > 1 && !seen[$1]++ { print $1 }'
}

_divvy_devices() {
    divvy devices 2>/dev/null | awk 'NR > 1 && $1 ~ /^[0-9]+$/ { print $1 }'
}

# Completes the word before the cursor to one of the lines of standard input. Readline replaces only what is behind the
# last of the characters that break words, such as the colon in `docker:1f2e`.
_divvy_reply() {
    local names name quoted word mark breaks= kept=
    [[ ${COMP_LINE:0:COMP_POINT} =~ ([^[:space:]\\]|\\.)*$ ]]
    word=${BASH_REMATCH[0]}
    [[ $word =~ ^([^\\\'\"]|\\.)*$ ]] || return # within quotes the names would need others
    for mark in : = @; do
        [[ $COMP_WORDBREAKS == *$mark* ]] && breaks+=$mark
    done
    [[ -n $breaks && $word == *[$breaks]* ]] && kept=${word%"${word##*[$breaks]}"}
    mapfile -t names
    for name in "${names[@]}"; do
        printf -v quoted %q "$name"
        [[ $name == "$word"* || $quoted == "$word"* ]] && COMPREPLY+=("${quoted#"$kept"}")
    done
}

# What bash-completion has; without it, names of files are completed in its place.
_divvy_begin() {
    if declare -F _init_completion >/dev/null; then
        _init_completion
        return
    fi
    COMPREPLY=() words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
    cur=${words[cword]} prev=${words[cword - 1]}
}

_divvy_files() {
    if declare -F _filedir >/dev/null; then _filedir "$@"; else compopt -o default; fi
}

_divvy_program() {
    if declare -F _command_offset >/dev/null; then _command_offset "$1"; else compopt -o default; fi
}

_divvy() {
    local cur prev words cword
    _divvy_begin || return
    local commands="run ps top devices tenants explain whoami doctor end park resume set policy usage trace record metrics reload check
        version"
    local command= i
    local view="--json --daemon --help"
    local share="--request --limit --weight --class"

    for ((i = 1; i < cword; i++)); do
        if [[ ${words[i]} != -* ]]; then
            command=${words[i]}
            break
        fi
    done
    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$cur"))
        return
    fi
    if [[ $command == run ]]; then # the words behind the program are the program's
        for ((i++; i < cword; i++)); do
            case ${words[i]} in
            --)
                _divvy_program $((i + 1))
                return
                ;;
            --present-as | --device | --daemon | --name | --memory | --deadline | --request | --limit | --weight | --class)
                ((i++))
                ;;
            -*) ;;
            *)
                _divvy_program "$i"
                return
                ;;
            esac
        done
    fi
    case $prev in
    --daemon | --dir)
        _divvy_files -d
        return
        ;;
    --class)
        COMPREPLY=($(compgen -W "latency standard batch idle" -- "$cur"))
        return
        ;;
    --present-as)
        COMPREPLY=($(compgen -W "cpu gpu accelerator" -- "$cur"))
        return
        ;;
    --device)
        _divvy_reply < <(_divvy_devices)
        return
        ;;
    --by)
        COMPREPLY=($(compgen -W "user tenant command" -- "$cur"))
        return
        ;;
    --sort)
        if [[ $command == top ]]; then
            COMPREPLY=($(compgen -W "share memory used name" -- "$cur"))
        else
            COMPREPLY=($(compgen -W "SESSION PID USER TENANT DEVICE SHARE USED MEMORY COMMANDS AGE STATE" -- "$cur"))
        fi
        return
        ;;
    --request | --limit | --weight | --memory | --memory-request | --deadline | --name | --slice | --since | --until | --for | \
        --filter)
        return
        ;;
    -o)
        [[ $command == ps ]] || _divvy_files
        return
        ;;
    esac
    local options=
    case $command in
    run) options="--present-as --device --name --memory --deadline --daemon --help $share" ;;
    ps) options="--ended --sort -o --no-trunc $view" ;;
    top) options="--batch -n -d --sort --filter --daemon --help" ;;
    devices | explain) options="--verbose $view" ;;
    set) options="$share --memory --memory-request --device --save --forget $view" ;;
    policy) options="--slice $view" ;;
    usage) options="--since --until --by --dir --json --help" ;;
    metrics) options="-o --daemon --help" ;;
    trace) options="-o --for --leases --daemon --help" ;;
    record) options="-o --for --daemon --help" ;;
    *) options=$view ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$cur"))
        return
    fi
    case $command in
    run) _divvy_program "$cword" ;;
    explain | end | park | resume) _divvy_reply < <(_divvy_sessions) ;;
    set) _divvy_reply < <(_divvy_tenants && _divvy_sessions) ;;
    policy)
        if [[ $prev == policy ]]; then
            _divvy_reply < <(_divvy_devices)
        else
            COMPREPLY=($(compgen -W "elastic fair fifo band" -- "$cur"))
        fi
        ;;
    esac
}

complete -F _divvy divvy

# bash completion for mmb. `mmb completion bash` prints this file.
_mmb() {
    local IFS=$'\n' line words=()
    words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    COMPREPLY=()
    if line=$(mmb complete -- "${words[@]}" 2>/dev/null); then
        for line in $line; do
            COMPREPLY+=("${line%%$'\t'*}")
        done
    else
        compopt -o default
    fi
}
complete -F _mmb mmb

#compdef mmb
# zsh completion for mmb. `mmb completion zsh` prints this file.
_mmb() {
    local output line
    local -a items
    if output=$(mmb complete -- "${(@)words[2,CURRENT]}" 2>/dev/null); then
        for line in ${(f)output}; do
            items+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        done
        (( ${#items} )) && _describe mmb items
    else
        _files
    fi
}
if [ "$funcstack[1]" = _mmb ]; then
    _mmb "$@"
else
    compdef _mmb mmb
fi

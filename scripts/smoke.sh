# Install a distribution into an empty environment and use the program there: smoke.sh PYTHON PACKAGE
set -eu
package=$(realpath "$2")
constraints=$(realpath constraints.txt)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" "$package"
cd "$folder"
unset PYTHONPATH
"$folder/venv/bin/python" -c "import vimco; assert vimco.__file__.startswith('$folder'), vimco.__file__"
"$folder/venv/bin/vimco" --version
"$folder/venv/bin/vimco" data list > /dev/null
"$folder/venv/bin/vimco" train --layers 5 --num-samples 2 --updates 20 --batch-size 10 --output run
"$folder/venv/bin/vimco" resume run --updates 40
"$folder/venv/bin/vimco" evaluate run --num-samples 2
"$folder/venv/bin/vimco" report run --output report
test -s report/index.html
echo "$(basename "$package") works as installed."
